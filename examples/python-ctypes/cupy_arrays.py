"""CuPy on several streams under Forebay: results as NumPy's, and streams that come and go.

CuPy's allocator hook carries no stream, so the library asks CuPy for the current one. CuPy destroys a stream when its
Python object is collected, which may be while blocks freed on it are still cached and its last kernels still run.
"""

import gc

from common import STATS_HEADS, must, need, stats_row, table

numpy, cupy = need("numpy", "cupy")
import forebay_ctypes as forebay  # noqa: E402  (a missing framework must be said before a missing library)

ROWS = []

# Keeps a stream busy, so that whatever the pool does too early shows in the data.
SPIN = cupy.RawKernel(
    r"""
    extern "C" __global__ void spin(long long cycles) {
      long long start = clock64();
      while (clock64() - start < cycles) {}
    }
    """,
    "spin",
)


def spin(milliseconds: float) -> None:
    SPIN((1,), (1,), (numpy.int64(milliseconds * 1e6),))  # a GPU clock is between one and two GHz


def note(what: str) -> None:
    ROWS.append(stats_row(what, forebay.stats()))


def arithmetic_on_streams(rounds: int = 40) -> None:
    """The same arithmetic on eight streams and in NumPy."""
    rng = numpy.random.default_rng(1)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(8)]
    for number in range(rounds):
        host = rng.standard_normal(rng.integers(1_000, 2_000_000), dtype=numpy.float32)
        with streams[number % len(streams)] as stream:
            device = cupy.asarray(host)
            doubled = device * 2 + 1
            total = (doubled - device).sum(dtype=cupy.float64)
            stream.synchronize()
        if not numpy.array_equal(doubled.get(), host * 2 + 1):
            must(False, f"round {number}: elementwise result")
        if abs(float(total) - (host.astype(numpy.float64) + 1).sum()) > 1e-2:
            must(False, f"round {number}: sum")
    must(True, f"{rounds} rounds on 8 streams agree with NumPy")


def reuse_waits_for_the_stream(rounds: int = 20) -> None:
    """An array is freed while a slow stream still has to read it; another stream asks for memory of that size."""
    slow, fast = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    wrong = 0
    for number in range(rounds):
        with slow:
            source = cupy.full(1 << 20, number, dtype=cupy.int32)
            spin(3)
            copy = source + 1
            del source  # the work that reads it has not started
        with fast:
            other = cupy.full(1 << 20, -1, dtype=cupy.int32)
        slow.synchronize()
        fast.synchronize()
        wrong += int((copy != number + 1).sum()) + int((other != -1).sum())
    must(wrong == 0, f"{rounds} arrays freed before a slow stream read them were not overwritten")


def freed_outside_the_stream(rounds: int = 20) -> None:
    """An array made on a slow stream is freed with another one current: CuPy's own pool gives it back to the slow one."""
    slow = cupy.cuda.Stream(non_blocking=True)
    wrong = 0
    for number in range(rounds):
        with slow:
            source = cupy.full(1 << 20, number, dtype=cupy.int32)
            spin(3)
            copy = source + 1
        del source  # the default stream is current, and the slow one has yet to read
        other = cupy.full(1 << 20, -1, dtype=cupy.int32)
        slow.synchronize()
        wrong += int((copy != number + 1).sum()) + int((other != -1).sum())
    must(wrong == 0, f"{rounds} arrays freed outside their stream were not overwritten")


def streams_come_and_go(rounds: int = 200) -> None:
    """Streams destroyed with freed blocks cached and work pending; then their memory is wanted elsewhere."""
    kept = []
    for number in range(rounds):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            array = cupy.full(100_000 + number, number, dtype=cupy.int32)
            spin(0.2)
            result = array + 1
            del array
        event = stream.record()
        kept.append((result, event, number))
        del stream
    gc.collect()
    # Uses what the dead streams freed, on the default stream.
    pressure = [cupy.full(1 << 20, -1, dtype=cupy.int32) for _ in range(100)]
    for result, event, number in kept:
        event.synchronize()
        if int((result != number + 1).sum()):
            must(False, f"the result of dead stream {number} was overwritten")
    must(all(int(array.max()) == -1 for array in pressure), f"{rounds} streams destroyed with their work pending")


CASES = (arithmetic_on_streams, reuse_waits_for_the_stream, freed_outside_the_stream, streams_come_and_go)


def main() -> None:
    forebay.cupy_install()
    print(f"cupy {cupy.__version__} on forebay {forebay.lib.forebay_version().decode()}")
    note("start")
    for case in CASES:
        case()
        gc.collect()
        note(case.__name__)
    cupy.cuda.Device().synchronize()
    must(forebay.stats()["live_by_framework"]["cupy"] == 0, "no CuPy memory is live at the end")
    forebay.trim()
    note("trimmed")
    forebay.lib.forebay_pool_check(forebay.shared(), 0)
    print("\nMiB by framework, live and physical, and what the pool did:")
    table(STATS_HEADS, ROWS)


if __name__ == "__main__":
    main()
