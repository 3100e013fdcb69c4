"""Nanoseconds for one small allocation and its free, from Python, in each framework and on each allocator.

    python3 benches/frameworks/latency.py [--json] [--rounds 3] [--only torch,cupy,...]

Most of a figure is the framework itself: "does nothing" is the same loop over an allocator that does nothing. Each reading is
the median of many repeats in a process of its own, and the contenders take turns, so that none gets the quiet minute. A shared
machine makes whole processes slow, twice as slow at times, and none fast: the figure is the least reading. A contender that
cannot run says why, and the others go on.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import allocators

REPEATS, REPEAT_NS, LIMIT_SECONDS = 15, 25_000_000, 150

#: By what is measured: the contenders, the framework's own first.
MATRIX = {
    "torch": ("native", "async", "rmm-pool", "noop", "forebay", "forebay-base"),
    "cupy": ("own", "async", "rmm-pool", "noop", "forebay"),
    "cupy-async": ("own", "forebay"),
    "pinned": ("own", "torch", "forebay"),
    "numba": ("own", "rmm-pool", "forebay"),
    "core": ("own", "forebay"),
    "core-registered": ("own", "forebay"),
    "core-default": ("own", "forebay"),
}
WHAT = {
    "torch": "PyTorch empty(512)",
    "cupy": "CuPy empty(512)",
    "cupy-async": "CuPy MemoryAsyncPool().malloc(512)",
    "pinned": "pinned memory, 4 KiB, for CuPy",
    "numba": "Numba device_array(512)",
    "core": "cuda.core Device.allocate(512), stream of its own",
    "core-registered": "the same, promised to live (forebay.register_stream)",
    "core-default": "cuda.core Device.allocate(512), default stream",
}
WHO = {
    "own": "its own", "async": "the driver's pool", "rmm-pool": "RMM pool", "noop": "does nothing", "forebay": "Forebay",
    "forebay-base": "Forebay, base mode", "torch": "PyTorch's own, empty(pin_memory)",
}  # fmt: skip


def torch_pair(who):
    torch = allocators.torch_on(who)
    device, empty, kind = torch.device("cuda", 0), torch.empty, torch.uint8
    torch.arange(8, device=device).sum()
    return lambda: empty(512, dtype=kind, device=device)


def cupy_pair(who):
    import cupy

    # A program that computes has CUDA's runtime set up on its thread; one that only allocates through somebody else
    # has not, and pays several microseconds in every cudaGetDevice.
    cupy.arange(8).sum()
    if who == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    elif who == "rmm-pool":
        allocators.rmm_resource(who)
        from rmm.allocators.cupy import rmm_cupy_allocator

        cupy.cuda.set_allocator(rmm_cupy_allocator)
    elif who == "noop":
        import ctypes

        library = allocators.noop(cupy.cuda.runtime.malloc(1 << 20))
        hooks = [ctypes.cast(hook, ctypes.c_void_p).value for hook in (library.noop_cupy_malloc, library.noop_cupy_free)]
        cupy.cuda.set_allocator(cupy.cuda.memory.CFunctionAllocator(0, *hooks, library).malloc)
    elif who == "forebay":
        import forebay

        forebay.cupy.install()
    empty, kind = cupy.empty, cupy.uint8
    return lambda: empty(512, kind)


def cupy_async_pair(who):
    import cupy

    cupy.arange(8).sum()
    if who == "forebay":
        import forebay

        malloc = forebay.cupy.MemoryAsyncPool().malloc
    else:
        malloc = cupy.cuda.MemoryAsyncPool().malloc
    return lambda: malloc(512)


def pinned_pair(who):
    if who == "torch":
        import torch

        torch.arange(8, device="cuda").sum()
        empty, kind = torch.empty, torch.uint8
        return lambda: empty(4096, dtype=kind, pin_memory=True)
    import cupy

    cupy.arange(8).sum()
    if who == "forebay":
        import forebay

        malloc = forebay.cupy.PinnedMemoryPool().malloc
    else:
        malloc = cupy.cuda.PinnedMemoryPool().malloc
    return lambda: malloc(4096)


def numba_pair(who):
    import numpy

    # numba-cuda 0.30 uses a name that NumPy 2.5 no longer has.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    from numba import cuda

    if who == "rmm-pool":
        allocators.rmm_resource(who)
        from rmm.allocators.numba import RMMNumbaManager

        cuda.set_memory_manager(RMMNumbaManager)
    elif who == "forebay":
        import forebay

        forebay.numba.install()
    array, kind = cuda.device_array, numpy.uint8
    return lambda: array(512, kind)


def core_pair(who, default=False, registered=False):
    from cuda.core import Device, StreamOptions

    device = Device(0)
    device.set_current()
    if who == "forebay":
        import forebay

        forebay.cuda_core.install(0)
    stream = device.default_stream if default else device.create_stream(options=StreamOptions(nonblocking=True))
    if registered and who == "forebay":
        forebay.register_stream(stream)
    allocate = device.allocate
    held = allocate(512, stream=stream)  # the pool stays

    def pair(_=held):
        allocate(512, stream=stream).close()

    return pair


PAIRS = {
    "torch": torch_pair, "cupy": cupy_pair, "cupy-async": cupy_async_pair, "pinned": pinned_pair, "numba": numba_pair,
    "core": core_pair, "core-default": lambda who: core_pair(who, default=True),
    "core-registered": lambda who: core_pair(who, registered=True),
}  # fmt: skip


def repeat(pair, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        pair()
    return (time.perf_counter_ns() - start) / count


def read(what, who):
    """The median of many repeats, in this process."""
    pair = PAIRS[what](who)
    repeat(pair, 200)
    count = max(200, int(REPEAT_NS / repeat(pair, 1000)))
    repeat(pair, count)
    return statistics.median(repeat(pair, count) for _ in range(REPEATS))


def child(what, who):
    """(nanoseconds, "") of a process of its own, or (None, why not)."""
    name = who if what == "torch" else "native"
    command = [sys.executable, os.path.abspath(__file__), "--read", what, who]
    try:
        done = subprocess.run(command, env=allocators.environment(name), capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"over {LIMIT_SECONDS} s"
    if done.returncode == 0:
        return float(done.stdout.split()[-1]), ""
    return None, f"{reason(done.stderr or done.stdout)} (exit {done.returncode})"


def reason(text):
    """The line of a failed process that says why: not the stack that C++ prints behind its message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    return next((line for line in lines if line.startswith("what():")), lines[-1])[:160]


def show(what, readings, whys, as_json):
    least = {who: min(times) for who, times in readings.items() if times}
    own = least.get(MATRIX[what][0])
    print(f"\n{WHAT[what]:56} {'ns':>8}  of its own   readings")
    for who in MATRIX[what]:
        name = WHO["own"] if who == "native" else WHO[who]
        if who not in least:
            print(f"  {name:54} {'-':>8}  {whys[who]}")
            continue
        ratio = f"{least[who] / own:.3f}" if own else "-"
        print(f"  {name:54} {least[who]:8.0f}  {ratio:>10}   {' '.join(f'{time:.0f}' for time in readings[who])}")
        if as_json:
            figures = {"ns": least[who], "own_ns": own, "readings": readings[who]}
            print(json.dumps({"bench": f"latency: {WHAT[what]}", "allocator": who, **figures}))
    sys.stdout.flush()
    return {"native", "own", "forebay", "forebay-base"} & (set(MATRIX[what]) - set(least))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON line for each figure too")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each figure (%(default)s)")
    parser.add_argument("--only", default=",".join(MATRIX), help="what to measure: %(default)s")
    parser.add_argument("--read", nargs=2, metavar=("WHAT", "WHO"), help="one reading, in this process")
    options = parser.parse_args()
    if options.read:
        print(read(*options.read))
        return 0
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(MATRIX):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    missing = set()
    for what in wanted:
        readings, whys = {who: [] for who in MATRIX[what]}, {}
        for _ in range(options.rounds):
            for who in MATRIX[what]:
                if who not in whys:  # what failed once is not tried again
                    figure, why = child(what, who)
                    readings[who] += [figure] if figure else []
                    whys.update({who: why} if why else {})
        missing |= {f"{what} on {who}" for who in show(what, readings, whys, options.json)}
    if missing:
        print(f"\nno figure: {', '.join(sorted(missing))}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
