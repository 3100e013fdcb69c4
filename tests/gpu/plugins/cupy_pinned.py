"""forebay.cupy.PinnedMemoryPool under cupy.cuda.set_pinned_memory_allocator."""

import gc

from common import MIB, forebay, latency, must, numpy, ok, print_latencies, refused

import cupy
import cupyx

pool = forebay.cupy.PinnedMemoryPool()
own_pool = cupy.cuda.PinnedMemoryPool()
latency(own=(int, lambda: own_pool.malloc(4096)), forebay=(int, lambda: pool.malloc(4096)))
cupy.cuda.set_pinned_memory_allocator(pool.malloc)
memory = cupy.cuda.alloc_pinned_memory(1000)
must(memory.mem.size == 1024 and memory.size() == 1024, "sizes are rounded up to 512")
must(cupy.cuda.runtime.pointerGetAttributes(memory.ptr).type == 1, "the driver knows it as pinned memory of the host")
view = numpy.frombuffer(memory, numpy.uint8, 1000)
view[:] = 7
address = memory.ptr
del memory
must(int(view.sum()) == 7000, "an array holds it")
del view
must(pool.n_free_blocks() >= 1 and pool.malloc(1000).ptr == address, "it is handed out again")

for size in (4096, 3 * MIB, 40 * MIB):
    host = cupyx.empty_pinned(size, dtype=numpy.uint8)
    for value in range(5):
        host[:] = value
        device = cupy.empty(size, cupy.uint8)
        device.set(host)
        cupy.cuda.get_current_stream().synchronize()
        must(int(device.min()) == int(device.max()) == value, f"{size} bytes of {value} arrive")
        back = cupyx.empty_pinned(size, dtype=numpy.uint8)
        device.get(out=back)
        must(bool((back == value).all()), "and come back")

# Asynchronous copies from temporary pinned memory: CuPy holds it until they are done.
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    arrays = [cupy.asarray(numpy.full(100_000, number)) for number in range(200)]
stream.synchronize()
must(all(int(array[0]) == int(array[-1]) == number for number, array in enumerate(arrays)), "200 asynchronous copies")

block = pool.malloc(2048)
address = block.ptr
pool.free(address, 2048)
refused(RuntimeError, lambda: pool.free(address, 2048), "no block")
other = pool.malloc(2048)
must(other.ptr == address, "freed by hand, and used again")
del block
must(pool.malloc(2048).ptr != other.ptr, "the first owner is not its owner any more")
refused(ValueError, lambda: forebay.cupy.PinnedMemoryPool(forebay.Pool()), "pinned=True")
refused(TypeError, lambda: forebay.cupy.PinnedMemoryPool(5), "Pool")
must(pool.malloc(0).ptr == 0, "nothing is nothing")

print_latencies("cupy pinned 4096 and its free")

del other, arrays, host, back, device
gc.collect()
cupy.cuda.Device().synchronize()
cupy.cuda.alloc_pinned_memory(512)  # looks at what CuPy held for its copies
pool.free_all_blocks()
must(pool.n_free_blocks() == 0, "free_all_blocks gives everything back")
cupy.cuda.set_pinned_memory_allocator(own_pool.malloc)
ok()
