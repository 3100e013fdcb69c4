"""PyTorch's own tests of CUDA, under its own allocator and under Forebay: which outcomes differ, and why where we know.

    python3 tests/gpu/torch/suite.py [FOLDER]      # FOLDER: what is carried, .upstream by default

FOLDER/torch has ``test_cuda.py`` and ``test_cuda_trace.py`` of PyTorch's source, which its wheel lacks (2.12's will do for
2.11); FOLDER/site has ``expecttest``, which they import. Both allocators run the same tests in the same order at the same time,
each side in some processes of its own; tests that PyTorch marks ``serial`` run after them, one side after the other. Children
that a test starts allocate from PyTorch's own allocator with both. Ends with 1 if a test is worse under Forebay and not in
`NOT_OURS`.
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

FILES = ("test_cuda.py", "test_cuda_trace.py")

#: Not run: they say nothing of memory, and take long or break the process on purpose.
LEFT_OUT = {
    "TestGDS": "files on a GPU-direct file system",
    "TestThatContainsCUDAAssertFailure": "a device-side assertion, which ends the context",
    "TestCuda::test_cuda_kernel_loop_overflow_large": "an index of 64 bits; tens of seconds",
    "TestCuda::test_multinomial_invalid_probs_cuda": "assertions in children of fork; tens of seconds",
    "TestCuda::test_fixed_cuda_assert_async": "assertions in children; tens of seconds",
    "TestCuda::test_streaming_backwards_multiple_streams": "timing",
    "TestCuda::test_preferred_blas_library_settings": "four children that ask for an environment variable",
}

#: Each compiles an extension: in processes of their own, beside the others.
COMPILE = (
    "test_cpp_memory_snapshot_pickle",
    "test_mempool_empty_cache_inactive",
    "test_mempool_with_allocator",
    "test_tensor_delete_after_allocator_delete",
    "test_mempool_limited_memory_with_allocator",
    "test_deleted_mempool_not_used_on_oom",
    "test_mempool_expandable",
)

_SEGMENTS = "counts the segments of 2 and 20 MiB that PyTorch's own cache makes; Forebay's are runs of mapped addresses"
_REUSE = "asserts which of several free blocks is used next; Forebay takes the best fitting one"
_OPTION = (
    "an option of PyTorch's own cache, off by default (graph_capture_record_stream_reuse): memory used on a further stream is "
    "used again in the same capture; Forebay keeps it until the capture ends"
)

#: Worse under Forebay by its nature: the test is of how PyTorch's own cache works inside.
NOT_OURS = {
    "TestCuda::test_graph_memory_stats_and_use_result_after_destroy_graph": _SEGMENTS,
    "TestCuda::test_graph_two_successive": _SEGMENTS + " (the test says itself that it is about the native allocator)",
    "TestCuda::test_record_stream": _REUSE,
    "TestCudaAllocator::test_allocator_settings": "roundup_power2_divisions is of PyTorch's own cache",
    "TestMemPool::test_mempool_no_split": "counts the segments of a pool of Forebay's memory, whose blocks are cut to measure",
    "TestMemPool::test_mempool_ctx_multithread": _SEGMENTS,
    "TestBlockStateAbsorption::test_allocate_in_thread_to_pool": _SEGMENTS
    + ", and another thread allocates meanwhile: 3 or 4 of them, where the test wants 4",
    "TestMemPool::test_graph_capture_reclaim_2_streams": _OPTION,
    "TestMemPool::test_graph_capture_reclaim_4_streams": _OPTION,
}


def build():
    """Compiles the adapter once, before every process wants it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-m", "forebay.torch", "build"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=150,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=os.environ.get("FOREBAY_UPSTREAM", ".upstream"))
    parser.add_argument("--seconds", type=int, default=270, help="after so many nothing new is started")
    parser.add_argument("--workers", type=int, default=12, help="processes at once, both sides together")
    parser.add_argument("--only", help="tests whose name has this in it")
    arguments = parser.parse_args()
    folder = Path(arguments.folder)
    files = [name for name in FILES if (folder / "torch" / name).exists()]
    if not files:
        print(f"skipped: {folder / 'torch' / FILES[0]} is not there; carry PyTorch's test file")
        return 77
    started = time.monotonic()
    suite = Suite("torch", folder / "torch", paths=[folder / "site"], limit=90, seconds=arguments.seconds)
    if not build():
        return 1
    found = suite.collect(files)
    if not found:
        print("pytest found no tests")
        return 1

    def name(test):
        return test.split("::", 1)[1]

    def left_out(test):
        whole = name(test)
        return whole.split("::")[0] in LEFT_OUT or whole.split("[")[0] in LEFT_OUT

    tests = [test for test in found if not left_out(test) and (arguments.only or "") in test]
    compile_ = [test for test in tests if name(test).split("::")[-1] in COMPILE]
    alone = [test for test in tests if "serial" in found[test] and test not in compile_]
    beside = [test for test in tests if test not in compile_ and test not in alone]
    print(
        f"{len(found)} tests; {len(found) - len(tests)} left out, {len(alone)} run alone ({time.monotonic() - started:.0f} s)"
    )
    sys.stdout.flush()

    sides = ("own", "forebay")
    shards = [compile_[:1], compile_[1:], *split(beside, max(1, (arguments.workers - 4) // 2))]
    results = suite.side_by_side(sides, shards, arguments.workers)
    print(f"side by side done ({time.monotonic() - started:.0f} s)", flush=True)
    for side in sides:
        results[side].update(suite.run(side, alone))
    print(f"alone done ({time.monotonic() - started:.0f} s)", flush=True)
    # In PyTorch's order again.
    ordered = {side: {test: outcomes[test] for test in tests if test in outcomes} for side, outcomes in results.items()}
    worse = suite.judge(ordered, ["forebay"], NOT_OURS)
    print(f"PyTorch's tests: {worse} worse under Forebay ({time.monotonic() - started:.0f} s)")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
