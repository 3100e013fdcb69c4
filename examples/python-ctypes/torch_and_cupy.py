"""PyTorch and CuPy in one process on one pool: what one frees the other gets, with no copy and no empty_cache().

The pool may hold 4 GiB, and each framework in turn wants 3 GiB of it. With a cache in each framework the second one
would fail. Then both work on the same memory, through DLPack, and NumPy checks the result.
"""

import gc

from common import STATS_HEADS, must, need, stats_row, table

numpy, torch, cupy = need("numpy", "torch", "cupy")
import forebay_ctypes as forebay  # noqa: E402  (a missing framework must be said before a missing library)

GIB = 1 << 30
LIMIT = 4 * GIB
ROWS = []


def note(what: str) -> None:
    ROWS.append(stats_row(what, forebay.stats()))


def take_turns(rounds: int = 5) -> None:
    for number in range(rounds):
        tensors = [torch.full((GIB // 4,), number, dtype=torch.int32, device="cuda") for _ in range(3)]
        if number == 0:
            note("torch has 3 GiB")
        right = all(int(tensor[-1]) == number for tensor in tensors)
        del tensors
        arrays = [cupy.full(GIB // 4, -number, dtype=cupy.int32) for _ in range(3)]
        if number == 0:
            note("then cupy has 3 GiB")
        right = right and all(int(array[-1]) == -number for array in arrays)
        del arrays
        if not right:
            must(False, f"round {number}: each framework reads what it wrote")
    figures = forebay.stats()
    must(figures["physical_peak"] <= LIMIT, f"{rounds} turns of 3 GiB each under a limit of 4 GiB")
    must(figures["out_of_memory"] == 0, "and no allocation failed")


def work_on_the_same_memory() -> None:
    rng = numpy.random.default_rng(3)
    a, b = (rng.standard_normal((1024, 1024)) for _ in range(2))

    left = torch.from_numpy(a).cuda()
    shared = cupy.from_dlpack(left)  # the same memory, seen by CuPy
    must(shared.data.ptr == left.data_ptr(), "CuPy sees torch's tensor at its own address")
    torch.cuda.current_stream().synchronize()
    shared += 1  # CuPy writes into torch's tensor
    right = cupy.asarray(b)
    product = shared @ right
    cupy.cuda.get_current_stream().synchronize()

    back = torch.from_dlpack(product)
    must(back.data_ptr() == product.data.ptr, "torch sees CuPy's array at its own address")
    del shared, right, product  # torch's view keeps CuPy's block alive
    result = torch.relu(back - left).cpu().numpy()
    expected = numpy.maximum((a + 1) @ b - (a + 1), 0)
    must(numpy.allclose(result, expected, rtol=1e-9, atol=1e-9), "relu((a + 1) b - (a + 1)) is what NumPy gets")
    note("both have memory")


def different_streams() -> None:
    """Each framework on a stream of its own, many small hand-overs of memory through the pool."""
    ours, theirs = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    rng = numpy.random.default_rng(4)
    wrong = 0
    for number in range(100):
        count = int(rng.integers(1_000, 4_000_000))
        with torch.cuda.stream(ours):
            tensor = torch.full((count,), number, dtype=torch.int32, device="cuda")
            kept = tensor * 2
            del tensor
        with theirs:
            array = cupy.full(count, number, dtype=cupy.int32)
            copy = array * 3
            del array
        ours.synchronize()
        theirs.synchronize()
        wrong += int((kept != number * 2).sum()) + int((copy != number * 3).sum())
    must(wrong == 0, "100 rounds on two streams, freed in flight, every element right")


def main() -> None:
    forebay.torch_install()
    forebay.cupy_install()
    forebay.lib.forebay_pool_set_limit(forebay.shared(), 0, LIMIT)
    print(f"torch {torch.__version__}, cupy {cupy.__version__}, forebay {forebay.lib.forebay_version().decode()}")
    note("start")
    for case in (take_turns, work_on_the_same_memory, different_streams):
        case()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.synchronize()
    note("all freed")
    forebay.trim()
    note("trimmed")
    forebay.lib.forebay_pool_check(forebay.shared(), 0)
    print("\nMiB by framework, live and physical, and what the pool did:")
    table(STATS_HEADS, ROWS)


if __name__ == "__main__":
    main()
