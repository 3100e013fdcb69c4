"""What the programs share: the package from this checkout, spinning kernels, checks that say what they found."""

import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

import numpy

# numba-cuda 0.30 uses a name that NumPy 2.5 no longer has.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

import forebay

MIB, GIB = 1 << 20, 1 << 30


def must(condition, what):
    """Ends the program unless it is so."""
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"  {what}")


def refused(kind, call, *words):
    """The exception that a call must raise, with these words in its text."""
    try:
        call()
    except kind as error:
        for word in words:
            must(word in str(error), f"{type(error).__name__} says {word!r}")
        return error
    return sys.exit(f"FAILED: {call} raised no {kind.__name__}")


def stats(device=0):
    return forebay.Pool.shared().stats(device)


def verify(device=0):
    """Every equation of the shared pool."""
    forebay._core.pool_check(forebay._pool.shared_pool(), device)


def nanoseconds(call, count=20_000, repeats=5):
    """The best time of one call."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter_ns() - start) / count)
    return best


def print_latencies(bench):
    """Prints the latencies that this program has with the word `latency`, in a process of its own."""
    try:
        done = subprocess.run([sys.executable, sys.argv[0], "latency"], capture_output=True, text=True, timeout=100)
        figures = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
        log = done.stdout + done.stderr
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        figures, log = None, repr(error)
    if figures is None:  # a figure less, and no reason to end the program
        print(log)
    print(json.dumps({"bench": bench, **(figures or {"failed": True})}))


def latency(count=10_000, **calls):
    """Ends a program that was called for its latencies: ns of each call, the best of turns that they take. A call comes with
    what is to be done before its turn."""
    if "latency" in sys.argv:
        best = {}
        for _ in range(5):
            for name, (before, call) in calls.items():
                before()
                best[name] = min(best.get(name, float("inf")), nanoseconds(call, count, 2))
        print(json.dumps({f"{name}_ns": round(figure) for name, figure in best.items()}))
        sys.exit()


def cupy_spin():
    """A kernel that keeps a stream busy for some milliseconds."""
    import cupy

    kernel = cupy.RawKernel(
        r"""extern "C" __global__ void spin(long long cycles) {
              long long start = clock64();
              while (clock64() - start < cycles) {}
            }""",
        "spin",
    )
    return lambda milliseconds: kernel((1,), (1,), (numpy.int64(milliseconds * 1.5e6),))


def ok():
    print("ok", os.path.basename(sys.argv[0]).removesuffix(".py"))
