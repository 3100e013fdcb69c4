"""Nanoseconds for one empty(512) and its free, from Python: PyTorch and CuPy with their own pools and with Forebay.

    python3 benches/gpu/frameworks.py [--json]

Most of the figure is the framework itself: the same loop with an allocator that does nothing costs 1.5 to 1.7 µs.
Each reading comes from a process of its own, and the contenders take turns, so that neither gets the quiet minute.
"""

import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples", "python-ctypes")
ROUNDS, REPEATS, CALLS = 3, 15, 20_000


def torch_loop():
    import torch

    device = torch.device("cuda", 0)
    torch.arange(8, device=device).sum()
    empty, kind = torch.empty, torch.uint8

    def loop(count):
        for _ in range(count):
            empty(512, dtype=kind, device=device)

    return loop


def cupy_loop():
    import cupy

    # A program that computes has CUDA's runtime set up on its thread; one that only allocates through somebody else
    # has not, and pays several microseconds in every cudaGetDevice.
    cupy.arange(8).sum()
    empty, kind = cupy.empty, cupy.uint8

    def loop(count):
        for _ in range(count):
            empty(512, kind)

    return loop


def read(framework: str, allocator: str) -> float:
    """The median of many repeats, in this process."""
    if allocator == "forebay":
        sys.path.insert(0, EXAMPLES)
        import forebay_ctypes

        getattr(forebay_ctypes, f"{framework}_install")()
    loop = {"torch": torch_loop, "cupy": cupy_loop}[framework]()
    loop(CALLS)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        loop(CALLS)
        times.append((time.perf_counter_ns() - start) / CALLS)
    return statistics.median(times)


def main() -> int:
    as_json = "--json" in sys.argv
    readings = {(f, a): [] for f in ("torch", "cupy") for a in ("own", "forebay")}
    environment = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    for _ in range(ROUNDS):
        for framework, allocator in readings:
            command = [sys.executable, os.path.abspath(__file__), framework, allocator]
            output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
            readings[framework, allocator].append(float(output))
    good = True
    print(f"{'framework':10} {'own pool':>10} {'forebay':>10}   ns for empty(512) and its free")
    for framework in ("torch", "cupy"):
        own, ours = (statistics.median(readings[framework, allocator]) for allocator in ("own", "forebay"))
        good = good and ours < own
        print(f"{framework:10} {own:10.0f} {ours:10.0f}   {ours / own:.3f} of its own")
        if as_json:
            print(json.dumps({"bench": f"{framework} empty(512)", "own_ns": own, "forebay_ns": ours}))
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(read(sys.argv[1], sys.argv[2]))
    else:
        sys.exit(main())
