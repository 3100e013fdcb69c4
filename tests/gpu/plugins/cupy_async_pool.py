"""forebay.cupy.MemoryAsyncPool: document 003 whole, on the driver's pools."""

import sys

from common import MIB, cupy_spin, forebay, latency, must, ok, print_latencies, refused

import cupy
from cupy.cuda import runtime

MemoryAsyncPool = forebay.cupy.MemoryAsyncPool
count = runtime.getDeviceCount()


def pair(malloc):
    """One array and its end."""
    return lambda: cupy.cuda.set_allocator(malloc), lambda: cupy.empty(512, cupy.uint8)


if "latency" in sys.argv:
    own, ours = cupy.cuda.MemoryAsyncPool().malloc, MemoryAsyncPool().malloc

    def use_a_hook():
        cupy.cuda.set_allocator(ours)
        with cupy.cuda.MemoryHook():
            pass

    latency(own=pair(own), forebay=pair(ours), forebay_after_a_hook=(use_a_hook, pair(ours)[1]))
default, current = runtime.deviceGetDefaultMemPool(0), runtime.deviceGetMemPool(0)

for handles in ("current", "default", default, ["current"] * count, ("default",) * count):
    pool = MemoryAsyncPool(handles)
    memory = pool.malloc(1000)
    must(memory.mem.size >= 1000 and memory.device_id == 0, f"{handles!r} gives memory")
    must(pool.used_bytes() >= 1024 and pool.total_bytes() >= pool.used_bytes(), "it counts")
    must(pool.free_bytes() == pool.total_bytes() - pool.used_bytes(), "free is what is held and not used")
    del memory
must(runtime.deviceGetMemPool(0) == current, "the device's current pool is as it was")
refused(ValueError, lambda: MemoryAsyncPool("create"), "create")
refused(ValueError, lambda: MemoryAsyncPool(["current"] * (count + 1)), str(count))
refused(ValueError, lambda: MemoryAsyncPool([]), "0 entries")
refused(TypeError, lambda: MemoryAsyncPool(1.5))

a, b = MemoryAsyncPool(), MemoryAsyncPool()
must(a == a and a != b and hash(a) != hash(b), "pools are equal to themselves")
for compare in (lambda: a < b, lambda: a <= b, lambda: a > b, lambda: a >= b):
    refused(TypeError, compare)

pool = MemoryAsyncPool("default")
cupy.cuda.set_allocator(pool.malloc)
array = cupy.arange(10 * MIB, dtype=cupy.uint8)
must(pool.used_bytes() >= 10 * MIB and int(array[255]) == 255, "arrays live there")
del array
cupy.cuda.get_current_stream().synchronize()
pool.free_all_blocks()
must(pool.used_bytes() == 0 and pool.free_bytes() == 0, "free_all_blocks gives back")
refused(NotImplementedError, pool.n_free_blocks, "MemoryAsyncPool")
with cupy.cuda.Stream(non_blocking=True) as stream:
    kept, gone = cupy.ones(MIB), cupy.ones(MIB)
    del gone
    pool.free_all_blocks(stream)
must(pool.used_bytes() >= 8 * MIB, "what is live stays")
del kept
pool.free_all_blocks()
spin, side, used = cupy_spin(), cupy.cuda.Stream(non_blocking=True), pool.used_bytes()
with side:
    block = cupy.full(8 * MIB, 1, dtype=cupy.uint8)
    spin(3)
with cupy.cuda.Stream(non_blocking=True) as other:
    del block
    pool.free_all_blocks(other)
    must(pool.used_bytes() == used and pool.free_bytes() == 0, "who waits for the stream of the free has the memory")
with forebay.Stream() as stream:
    pool.free_all_blocks(stream)
refused(OverflowError, lambda: pool.set_limit(size=2**64), str(2**64))

must(pool.get_limit() == 2**64 - 1, "there is no limit at first")
pool.set_limit(size=64 * MIB)
must(pool.get_limit() == 64 * MIB == MemoryAsyncPool("default").get_limit(), "the limit is that of the driver's pool")
half = cupy.empty(40 * MIB, cupy.uint8)
refused(cupy.cuda.memory.OutOfMemoryError, lambda: cupy.empty(40 * MIB, cupy.uint8), "limit", str(64 * MIB))
del half
cupy.cuda.Device().synchronize()
again = cupy.empty(40 * MIB, cupy.uint8)
del again
pool.set_limit(fraction=0.25)
must(abs(pool.get_limit() - runtime.memGetInfo()[1] / 4) < 2, "a limit as a share")
pool.set_limit()
must(pool.get_limit() == 2**64 - 1, "and none again")
for size, fraction, word in ((-1, None, "-1"), (None, 1.5, "1.5"), (1, 0.5, "one of them")):
    refused(ValueError, lambda size=size, fraction=fraction: pool.set_limit(size, fraction), word)
refused(cupy.cuda.memory.OutOfMemoryError, lambda: cupy.empty(1 << 50, cupy.uint8))

spin, side, wrong = cupy_spin(), cupy.cuda.Stream(non_blocking=True), 0
for number in range(20):
    with side:
        source = cupy.full(1 << 20, number, dtype=cupy.int32)
        spin(3)
        copy = source + 1
    del source  # on another stream than its own
    other = cupy.full(1 << 20, -1, dtype=cupy.int32)
    side.synchronize()
    wrong += int((copy != number + 1).sum()) + int((other != -1).sum())
must(wrong == 0, "memory freed on another stream is not overwritten")
for number in range(300):  # streams that are gone before their memory is freed
    with cupy.cuda.Stream(non_blocking=True):
        array = cupy.full(1000, number)
    del array
cupy.cuda.Device().synchronize()


class Count(cupy.cuda.MemoryHook):
    name = "Count"

    def __init__(self):
        self.events = []

    def malloc_postprocess(self, **words):
        self.events.append(("malloc", words["mem_size"], words["mem_ptr"]))

    def free_postprocess(self, **words):
        self.events.append(("free", words["mem_size"], words["mem_ptr"]))


with Count() as hook:
    array = cupy.empty(1000, cupy.uint8)
    address = array.data.ptr
    del array
must(hook.events == [("malloc", 1024, address), ("free", 1024, address)], "memory hooks are called")

cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
print_latencies("cupy MemoryAsyncPool empty(512) and its free")
cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
ok()
