"""forebay.cupy.install: arrays are Forebay's, in the order of the current stream; errors are CuPy's; it ends as it began."""

import os
import sys

from common import GIB, MIB, cupy_spin, forebay, must, nanoseconds, numpy, ok, refused, stats, verify

import cupy

own = nanoseconds(lambda: cupy.empty(512, cupy.uint8))
before = cupy.cuda.get_allocator()
kept = cupy.arange(1000)
pool = forebay.cupy.install()
must(forebay.cupy.install() is pool and forebay.cupy.pool() is pool, "installing twice is once")
a = cupy.arange(1 << 20, dtype=cupy.int32)
must(stats().live_by_framework["cupy"] == 4 * MIB, "an array is memory of the shared pool")
must(pool.used_bytes() == stats().live and pool.total_bytes() == stats().physical, "figures are the pool's")
must(pool.free_bytes() + pool.used_bytes() == pool.total_bytes(), "used and free are all")
must(int((a * 2).sum(dtype=cupy.int64)) == (1 << 20) * ((1 << 20) - 1), "it computes")
must(int(kept.sum()) == 499500, "arrays from before stay")
del kept
must(cupy.empty(0).data.ptr == 0, "an empty array has no memory")

error = refused(cupy.cuda.memory.OutOfMemoryError, lambda: cupy.empty(1 << 50, cupy.uint8), "out of memory", "asked for")
must(isinstance(error, MemoryError), "CuPy's OutOfMemoryError is a MemoryError")
pool.set_limit(size=GIB)
must(pool.get_limit() == GIB, "the limit is as set")
refused(cupy.cuda.memory.OutOfMemoryError, lambda: cupy.empty(2 * GIB, cupy.uint8), "limit")
pool.set_limit(fraction=0.5)
must(abs(pool.get_limit() - forebay.Pool.shared().memory_info()[1] / 2) < 2, "a limit as a share")
pool.set_limit()
must(pool.get_limit() == 0, "no limit")
refused(ValueError, lambda: pool.set_limit(size=1, fraction=0.5), "one of them")

spin, slow, fast, wrong = cupy_spin(), cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True), 0
for number in range(20):
    with slow:
        source = cupy.full(1 << 20, number, dtype=cupy.int32)
        spin(3)
        copy = source + 1
    if number % 2:
        del source  # the default stream is current
    else:
        with slow:
            del source
    with fast:
        other = cupy.full(1 << 20, -1, dtype=cupy.int32)
    slow.synchronize()
    fast.synchronize()
    wrong += int((copy != number + 1).sum()) + int((other != -1).sum())
must(wrong == 0, "memory freed under pending work is not overwritten")

del a, copy, other
cupy.cuda.Device().synchronize()
pool.free_all_blocks()
must(stats().live_by_framework["cupy"] == 0, "nothing is live")
must(pool.n_free_blocks() == 0 and pool.total_bytes() == 0, "free_all_blocks gives everything back")
ours = nanoseconds(lambda: cupy.empty(512, cupy.uint8))
print(f'{{"bench": "cupy empty(512) and its free", "own_ns": {own:.0f}, "forebay_ns": {ours:.0f}}}')

second = forebay.Pool(limit=GIB)
array = (forebay.cupy.install(second), cupy.ones(1000))[1]
must(second.stats().live == 8192 and stats().live_by_framework["cupy"] == 0, "another pool serves")
forebay.cupy.uninstall()
must(cupy.cuda.get_allocator() is before or cupy.cuda.get_allocator() == before, "uninstall gives the allocator back")
del second
must(float(array.sum()) == 1000, "arrays outlive uninstall, and keep their pool")
del array
forebay.cupy.uninstall()

with cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc):
    refused(ValueError, forebay.cupy.install)
forebay.cupy.install()
cupy.cuda.set_allocator(None)
forebay.cupy.uninstall()
must(cupy.cuda.get_allocator() is not before, "another allocator set since is left alone")

sys.stdout.flush()
child = os.fork()
if child == 0:
    try:
        forebay.cupy.install()
    except RuntimeError as error:
        os._exit(0 if "fork" in str(error) else 2)
    os._exit(1)
must(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a forked child is refused")
verify()
late = (forebay.cupy.install(), cupy.ones(numpy.int64(5)))[1]  # freed by the ending interpreter
ok()
