"""forebay.cuda_core: a device's memory resource, and buffers that both libraries use."""

import gc
import threading

from common import GIB, MIB, forebay, latency, must, numpy, ok, print_latencies, refused, stats, verify

from cuda.core import LEGACY_DEFAULT_STREAM, Buffer, Device, LegacyPinnedMemoryResource, StreamOptions

device = Device(0)
device.set_current()
stream = device.create_stream(options=StreamOptions(nonblocking=True))
before = device.memory_resource
mr = forebay.cuda_core.install()


def pair(resource, queue):
    """One buffer and its end, as `Device.allocate` makes it."""
    return lambda: setattr(device, "memory_resource", resource), lambda: device.allocate(512, stream=queue).close()


latency(
    own=pair(before, stream),
    forebay=pair(mr, stream),
    own_default_stream=pair(before, LEGACY_DEFAULT_STREAM),
    forebay_default_stream=pair(mr, LEGACY_DEFAULT_STREAM),
)
must(device.memory_resource is mr and forebay.cuda_core.install(0) is mr, "installing twice is once")
must((mr.device_id, mr.is_device_accessible, mr.is_host_accessible, mr.is_managed) == (0, True, False, False), "what it is")
buffer = device.allocate(1000, stream=stream)
must(type(buffer) is Buffer and buffer.memory_resource is mr and buffer.size == 1000, "its buffers are cuda.core's")
must(stats().live_by_framework["cuda_core"] == 1024, "and memory of the shared pool")
must(buffer.is_device_accessible and not buffer.is_host_accessible and buffer.device_id == 0, "accessible as device memory")

host = LegacyPinnedMemoryResource().allocate(1000, stream=stream)
bytes_of = numpy.from_dlpack(host).view(numpy.uint8)
bytes_of[:] = numpy.arange(1000) % 251
host.copy_to(buffer, stream=stream)
stream.sync()
ours = forebay.Buffer.from_dlpack(buffer)
must(int(ours.handle) == int(buffer.handle) and ours.size == 1000, "Forebay takes its buffers")
theirs = Buffer.from_handle(int(ours.handle), ours.size, owner=ours)
bytes_of[:] = 0
theirs.copy_to(host, stream=stream)
stream.sync()
must(bool((bytes_of == numpy.arange(1000) % 251).all()), "and cuda.core takes Forebay's")
own_buffer = forebay.PoolMemoryResource().allocate(1000, stream=stream)
back = Buffer.from_handle(int(own_buffer.handle), 1000, owner=own_buffer)
host.copy_to(back, stream=stream)
own_buffer.copy_from(forebay.Buffer.from_handle(int(buffer.handle), 1000, owner=buffer), stream=stream)
stream.sync()
del ours, theirs, back, own_buffer

again = buffer.copy_to(stream=stream)
must(again.memory_resource is mr and again.size == 1000, "a copy comes from the same resource")
again.close(stream)
buffer.close()
buffer.close()
gc.collect()
must(stats().live_by_framework["cuda_core"] == 0, "closed is free")
mr.allocate(MIB, stream=stream)
gc.collect()
must(stats().live_by_framework["cuda_core"] == 0, "collected is free")
with mr.allocate(0, stream=stream) as empty:
    must(empty.size == 0, "an empty buffer")
refused(ValueError, lambda: mr.allocate(-1, stream=stream), "-1")
refused(TypeError, lambda: mr.allocate(1.5, stream=stream), "integer")
refused(TypeError, lambda: mr.allocate(512, stream="x"))
refused(ValueError, lambda: mr.deallocate(12345, 512, stream=stream))
refused(ValueError, lambda: forebay.cuda_core.MemoryResource(999), "999")
refused(MemoryError, lambda: mr.allocate(1 << 50, stream=stream), "asked for")
must(stats().live_by_framework["cuda_core"] == 0, "nothing leaked")

small = forebay.Pool(limit=64 * MIB)
limited = forebay.cuda_core.MemoryResource(device, small)
refused(MemoryError, lambda: limited.allocate(GIB, stream=stream), "limit")
pinned = forebay.cuda_core.MemoryResource(0, forebay.Pool(pinned=True))
with pinned.allocate(4096, stream=stream) as memory:
    must(pinned.is_host_accessible and memory.is_host_accessible, "a pinned pool gives memory of the host")
    numpy.from_dlpack(memory).view(numpy.uint8)[:] = 5

streams, errors = [device.create_stream() for _ in range(4)], []


def work(number):
    try:
        Device(0).set_current()
        for step in range(2000):
            mr.allocate((step * 7919 + number) % (4 * MIB) + 1, stream=streams[number]).close(streams[(number + step) % 4])
    except BaseException as error:
        errors.append(error)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
must(not errors, f"four threads on four streams {errors}")
device.sync()
must(stats().live_by_framework["cuda_core"] == 0, "nothing is live")
verify()
print_latencies("cuda.core allocate(512) and close")
device.memory_resource = before
late = mr.allocate(512, stream=stream)  # freed by the ending interpreter
ok()
