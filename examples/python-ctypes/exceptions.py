"""What happens when things go wrong: out of memory, bad frees, exit with live memory, a forked child.

Each case is a process of its own, because some of them end it. A case passes when its checks hold, the process exits
with 0 and nothing on standard error looks like a crash.
"""

import ctypes
import os
import subprocess
import sys

from common import must, need

GIB = 1 << 30
LIMIT = "2G"
CRASH = ("Traceback", "terminate called", "Segmentation", "panicked", "CUDA error", "illegal")


def torch_out_of_memory():
    """torch.OutOfMemoryError, with the pool's report in it, and training goes on."""
    torch = need("torch")
    import forebay_ctypes as forebay

    forebay.torch_install()
    model = torch.nn.Linear(256, 256).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(512, 256, device="cuda")

    def step():
        sgd.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        sgd.step()
        return loss.item()

    first = step()
    before = forebay.stats()["live"]
    for _ in range(3):
        try:
            torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
            must(False, "4 GiB over a limit of 2 GiB is refused")
        except torch.OutOfMemoryError as error:
            text = str(error)
    must(True, "4 GiB over a limit of 2 GiB raises torch.OutOfMemoryError, which says:")
    print("    " + text.replace("\n", "\n    "))
    must("limit" in text.lower() and "live" in text.lower(), "the text has the limit and the live bytes")
    must(forebay.stats()["live"] == before, "nothing was allocated")
    for _ in range(20):
        last = step()
    must(last < first, f"training went on: loss {first:.4f} -> {last:.4f}")

    # What users' retry loops do: catch, drop something, try again.
    hoard = torch.empty(3 * GIB // 2, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(GIB, dtype=torch.uint8, device="cuda")
        must(False, "1 GiB beside 1.5 GiB is refused")
    except torch.cuda.OutOfMemoryError:
        del hoard
    again = torch.full((GIB,), 7, dtype=torch.uint8, device="cuda")
    must(int(again[-1]) == 7, "caught, freed, retried: there is room")


def cupy_out_of_memory():
    """CuPy's OutOfMemoryError, or at least MemoryError, with the pool's report in it."""
    cupy = need("cupy")
    import forebay_ctypes as forebay

    forebay.cupy_install()
    kept = cupy.arange(1000)
    for _ in range(3):
        try:
            cupy.empty(4 * GIB, dtype=cupy.uint8)
            must(False, "4 GiB over a limit of 2 GiB is refused")
        except MemoryError as error:  # cupy.cuda.memory.OutOfMemoryError is one
            kind, text = type(error).__name__, str(error)
    must(True, f"4 GiB over a limit of 2 GiB raises {kind}, which says:")
    print("    " + text.replace("\n", "\n    "))
    must("limit" in text.lower() and "live" in text.lower(), "the text has the limit and the live bytes")
    must(int((kept + 1).sum()) == 1000 * 1001 // 2, "CuPy goes on")


def bad_frees():
    """Every wrong free is an error with a text, changes nothing, and crashes nothing."""
    import forebay_ctypes as forebay

    lib, pool, block = forebay.lib, forebay.shared(), ctypes.c_void_p()
    lib.forebay_pool_malloc(pool, 1 << 20, 0, None, ctypes.byref(block))
    address = block.value
    before = forebay.stats()["live"]
    for what, pointer in (("interior", address + 512), ("foreign", 0x7FFF_0000_1000), ("misaligned", address + 1)):
        try:
            lib.forebay_pool_free(pool, pointer, None)
            must(False, f"{what} pointer is refused")
        except forebay.ForebayError as error:
            must(error.status == forebay.BAD_FREE, f"{what} pointer: {error}")
        lib.forebay_torch_free(pointer, 1 << 20, 0, None)  # the hooks have no way to answer; they must not crash
        lib.forebay_cupy_free(None, pointer, 0)
    must(forebay.stats()["live"] == before, "nothing changed")
    lib.forebay_pool_free(pool, address, None)
    try:
        lib.forebay_pool_free(pool, address, None)
        must(False, "a second free is refused")
    except forebay.ForebayError as error:
        must(error.status == forebay.BAD_FREE, f"freed twice: {error}")
    lib.forebay_pool_free(pool, None, None)
    must(forebay.stats()["live"] == 0, "free(NULL) is fine, and all is freed")
    lib.forebay_pool_check(pool, 0)


def exit_with_live_tensors():
    """Python destroys these at interpreter exit, when CUDA may be gone."""
    torch, cupy = need("torch", "cupy")
    import forebay_ctypes as forebay

    forebay.torch_install()
    forebay.cupy_install()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        sys.kept_on_a_stream = torch.ones(1 << 20, device="cuda")
    sys.kept = [torch.ones(1 << 20, device="cuda"), cupy.ones(1 << 20), forebay]
    sys.kept.append(sys.kept)  # a cycle: only the last collection finds it
    must(True, "exiting with live tensors and work queued")


def forked_child():
    """CUDA does not survive a fork. A child that still frees, allocates or exits must get an error, not a crash."""
    torch = need("torch")
    import forebay_ctypes as forebay

    forebay.torch_install()
    tensor = torch.ones(1 << 20, device="cuda")
    lib, pool = forebay.lib, forebay.shared()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        block, good = ctypes.c_void_p(), False
        try:
            lib.forebay_pool_malloc(pool, 4096, 0, None, ctypes.byref(block))
        except forebay.ForebayError as error:
            good = error.status == forebay.FORKED
            print(f"  ok   in the child: {error}")
        del tensor  # goes to forebay_torch_free
        sys.exit(0 if good else 3)  # runs every exit handler and destructor
    _, status = os.waitpid(child, 0)
    must(os.waitstatus_to_exitcode(status) == 0, "the child got an error and exited cleanly")
    must(float(tensor.sum()) == 1 << 20, "the parent's tensor is whole")
    must(float((tensor * 2).sum()) == 2 << 20, "and the parent goes on")


CASES = [torch_out_of_memory, cupy_out_of_memory, bad_frees, exit_with_live_tensors, forked_child]


def main() -> int:
    need("torch", "cupy")
    failed = 0
    environment = dict(os.environ, FOREBAY_LIMIT=LIMIT)
    for case in CASES:
        print(case.__name__, flush=True)
        command = [sys.executable, os.path.abspath(__file__), case.__name__]
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        good = done.returncode == 0 and not any(word in done.stderr for word in CRASH)
        if not good:
            print(f"  FAIL exit {done.returncode}\n{done.stderr}")
            failed += 1
    print(f"{len(CASES) - failed} of {len(CASES)} cases passed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {case.__name__: case for case in CASES}[sys.argv[1]]()
    else:
        sys.exit(main())
