"""forebay.rmm: RMM's buffers in the shared pool, beside CuPy, from threads, under a limit, at exit."""

import gc
import sys
import threading

from common import GIB, MIB, forebay, latency, must, numpy, ok, print_latencies, refused, stats, verify

try:
    import rmm
except ImportError as error:
    print(f"skipped: RMM is not installed ({error})")
    sys.exit(77)

import cupy
from rmm.pylibrmm.stream import Stream

before = rmm.mr.get_current_device_resource()
mr = forebay.rmm.install()
stream = Stream()


def pair(resource, queue):
    """A piece of memory and its end, as a buffer makes it."""
    return lambda: rmm.mr.set_current_device_resource(resource), lambda: rmm.DeviceBuffer(size=4096, stream=queue)


pool = rmm.mr.PoolMemoryResource(before, GIB)
latency(
    rmm_pool=pair(pool, stream),
    rmm_async=pair(rmm.mr.CudaAsyncMemoryResource(), stream),
    forebay=pair(mr, stream),
    rmm_pool_default_stream=pair(pool, rmm.pylibrmm.stream.DEFAULT_STREAM),
    forebay_default_stream=pair(mr, rmm.pylibrmm.stream.DEFAULT_STREAM),
)


def given():
    return stats().live_by_framework["rmm"]


must(rmm.mr.get_current_device_resource() is mr and forebay.rmm.install(0) is mr, "installing twice is once")
numbers = numpy.arange(1 << 20, dtype=numpy.int32)
buffer = rmm.DeviceBuffer.to_device(numbers.view(numpy.uint8), stream)
must(given() == 4 * MIB, "its buffers are memory of the shared pool")
must(bool((numpy.frombuffer(buffer.tobytes(stream), numpy.int32) == numbers).all()), "and hold what was written")
forebay.cupy.install()
view = cupy.ndarray(numbers.shape, numpy.int32, cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(buffer.ptr, buffer.size, buffer), 0))
must(int((view * 2).sum()) == 2 * int(numbers.sum()), "CuPy reads them")
copy = rmm.DeviceBuffer(ptr=buffer.ptr, size=buffer.size, stream=stream)
del buffer, view
gc.collect()
must(given() == 4 * MIB, "what ends is free")
must(bool((numpy.frombuffer(copy.tobytes(stream), numpy.int32) == numbers).all()), "and its copy is whole")
copy.resize(8 * MIB, stream)
must(given() == 8 * MIB, "a buffer grows")
del copy
counted = rmm.mr.StatisticsResourceAdaptor(mr)
rmm.mr.set_current_device_resource(counted)
held = rmm.DeviceBuffer(size=1000)
must((counted.allocation_counts.current_bytes, given()) == (1000, 1024), "below an adaptor of RMM's")
del held
rmm.mr.set_current_device_resource(mr)
refused(MemoryError, lambda: rmm.DeviceBuffer(size=1 << 50), "asked for")

limit = 2 * GIB
forebay.Pool.shared().set_limit(limit)
for _ in range(3):
    held = rmm.DeviceBuffer(size=limit * 3 // 4)
    del held
    held = cupy.empty(limit * 3 // 4, cupy.uint8)
    del held
must(stats().physical_peak <= limit, "RMM and CuPy in turn under one limit")
held = rmm.DeviceBuffer(size=limit * 3 // 4)
refused(MemoryError, lambda: rmm.DeviceBuffer(size=limit // 2), "limit")
cycle = [held]
cycle.append(cycle)
del held, cycle
kept = rmm.DeviceBuffer(size=limit // 2)
must(kept.size == limit // 2, "garbage is collected before a request fails")
del kept
forebay.Pool.shared().set_limit(0)

wrong = []


def work(number):
    mine = Stream()
    for step in range(100):
        buffer = rmm.DeviceBuffer.to_device(numpy.full(4096 << step % 6, number, numpy.uint8), mine)
        other = rmm.DeviceBuffer.to_device(numpy.full(65536, 255, numpy.uint8), mine)
        if not (numpy.frombuffer(buffer.tobytes(mine), numpy.uint8) == number).all():
            wrong.append(step)
        del buffer, other
    mine.synchronize()


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
must(not wrong and given() == 0, "eight threads' buffers were their own, and came back")
verify()
print_latencies("rmm_install")
live_at_exit = [rmm.DeviceBuffer(size=MIB, stream=stream), rmm.DeviceBuffer(size=512)]
live_at_exit.append(live_at_exit)
ok()
