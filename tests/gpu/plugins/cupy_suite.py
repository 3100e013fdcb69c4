"""CuPy's own tests under CuPy's own pool and under Forebay: which outcomes differ, and why where we know.

    python3 tests/gpu/plugins/cupy_suite.py [FOLDER]      # FOLDER: what is carried, .upstream by default

FOLDER/cupy/tests is part of ``tests`` of CuPy's source, which its wheel lacks. There are three sides: ``own``; ``forebay``,
where arrays and pinned memory are Forebay's at the start of each test; and ``classes``, where besides
`cupy.cuda.memory.MemoryPool` and `MemoryAsyncPool` are Forebay's classes, for the tests of these. Tests that CuPy marks
``slow`` fill the memory, and run after the others, one side after the other. Ends with 1 if a test is worse under Forebay and
not in `NOT_OURS`.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "gpu" / "upstream"))

from compare import Suite, split  # noqa: E402

FILES = ("cupy_tests/cuda_tests", "cupy_tests/core_tests")

#: What the third side is about.
CLASSES = ("::TestMemoryPool", "::TestAllocator", "::TestMemoryAsyncPool")

#: Not run: they say nothing of memory, and take long.
LEFT_OUT = ("test_raw.py",)

_KINDS = "asserts the classes of CuPy's memory objects; memory of a C function allocator has CuPy's class for that"
_FREE = "calls free() of CuPy's PooledMemory; memory of a C function allocator goes back when its last array does"
_REUSE = (
    "asserts whether two streams get the same free block; Forebay gives what is proven unused to anybody, and keeps what is not"
)

#: Worse under Forebay by its nature.
NOT_OURS = {
    "TestMemoryPool::test_zero_size_alloc": _KINDS,
    "TestMemoryPool::test_double_free": _FREE,
    "TestMemoryPool::test_free_all_blocks": _FREE,
    "TestMemoryPool::test_free_all_free": _FREE,
    "TestAllocator::test_reuse_between_thread_same_stream": _REUSE + " (it is freed while another stream is current)",
    "TestAllocator::test_reuse_between_thread_different_stream": _REUSE,
    "TestAllocator::test_reuse_between_thread_ptds": _REUSE,
    "TestMemoryAsyncPool::test_zero_size_alloc": _KINDS,
    "TestMemoryAsyncPool::test_alloc": _KINDS,
    "TestMemoryAsyncPool::test_interaction_with_CuPy_default_pool": "expects a shortage; Forebay has CuPy's cache emptied",
}


def gpus():
    """How many there are: CuPy skips tests that need more, once it is told."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=os.environ.get("FOREBAY_UPSTREAM", ".upstream"))
    parser.add_argument("--seconds", type=int, default=300, help="after so many nothing new is started")
    parser.add_argument("--workers", type=int, default=12, help="processes at once, all sides together")
    parser.add_argument("--only", help="tests whose name has this in it")
    arguments = parser.parse_args()
    tests = Path(arguments.folder) / "cupy" / "tests"
    files = [name for name in FILES if (tests / name).exists()]
    if not files:
        print(f"skipped: {tests} is not there; carry CuPy's tests")
        return 77
    started = time.monotonic()
    variables = {
        "CUPY_CACHE_DIR": os.environ.get("CUPY_CACHE_DIR", "/tmp/cupy_suite_cache"),
        "CUPY_TEST_GPU_LIMIT": str(gpus()),
    }
    suite = Suite("cupy", tests, limit=45, seconds=arguments.seconds, variables=variables)
    found = suite.collect(files)
    if not found:
        print("pytest found no tests")
        return 1
    wanted = [test for test in found if not any(name in test for name in LEFT_OUT) and (arguments.only or "") in test]
    alone = [test for test in wanted if "slow" in found[test] and "test_memory.py" in test]
    beside = [test for test in wanted if "slow" not in found[test]]
    print(
        f"{len(found)} tests; {len(beside)} side by side, {len(alone)} alone ({time.monotonic() - started:.0f} s)", flush=True
    )

    def ours(some):
        return [test for test in some if "test_memory.py" in test and any(name in test for name in CLASSES)]

    # Few, and first: the others may use up the time.
    classes = suite.run("classes", ours(beside))
    results = suite.side_by_side(("own", "forebay"), split(beside, max(1, (arguments.workers - 1) // 2)), arguments.workers)
    results["classes"] = classes
    for side, some in (("own", alone), ("forebay", alone), ("classes", ours(alone))):
        results[side].update(suite.run(side, some))
    print(f"all run ({time.monotonic() - started:.0f} s)", flush=True)
    worse = suite.judge(results, ["forebay", "classes"], NOT_OURS)
    print(f"CuPy's tests: {worse} worse under Forebay ({time.monotonic() - started:.0f} s)")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
