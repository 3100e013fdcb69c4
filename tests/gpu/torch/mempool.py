"""torch.cuda.MemPool and use_mem_pool: private memory, counts, snapshots, nesting, last resort, other allocators."""

import ctypes
import gc
import threading

from common import GIB, MIB, finish, install, must, refused

torch = install()
cuda = torch.cuda
cuda.init()
pool = cuda.MemPool()
must(pool.use_count() == 1, "a new pool has one hold")
with cuda.use_mem_pool(pool):
    must(pool.use_count() == 2, "entering takes another")
    inside = torch.ones(8 * MIB, dtype=torch.uint8, device="cuda")
    thread_made = []
    thread = threading.Thread(target=lambda: thread_made.append(torch.ones(8 * MIB, dtype=torch.uint8, device="cuda")))
    thread.start()
    thread.join()
must(pool.use_count() == 1, "leaving lets go of it")


def allocated(of):
    return sum(segment["allocated_size"] for segment in of.snapshot())


must(allocated(pool) == 8 * MIB, "the pool has this thread's tensor, and not the other thread's")
must(all(tuple(segment["segment_pool_id"]) == tuple(pool.id) for segment in pool.snapshot()), "segments name their pool")
address = inside.data_ptr()
del inside
outside = torch.ones(8 * MIB, dtype=torch.uint8, device="cuda")
must(outside.data_ptr() != address, "its free memory is not for others")
with cuda.use_mem_pool(pool):
    again = torch.ones(8 * MIB, dtype=torch.uint8, device="cuda")
must(again.data_ptr() == address, "it is used again in the pool")

inner = cuda.MemPool()
with cuda.use_mem_pool(pool):
    with cuda.use_mem_pool(inner):
        nested = torch.ones(2 * MIB, dtype=torch.uint8, device="cuda")
    after = torch.ones(2 * MIB, dtype=torch.uint8, device="cuda")
must(allocated(inner) == 2 * MIB and allocated(pool) == 10 * MIB, "the inner pool takes what is made inside it")
del nested, after, again, inner

reserved = cuda.memory_reserved()
del pool
gc.collect()
cuda.empty_cache()
must(cuda.memory_reserved() < reserved, "a pool that is gone gives its memory back")

spare = cuda.MemPool(use_on_oom=True)
with cuda.use_mem_pool(spare):
    filler = torch.empty(GIB, dtype=torch.uint8, device="cuda")
del filler
cuda.set_per_process_memory_fraction(cuda.memory_reserved() / cuda.mem_get_info()[1])
saved = torch.empty(GIB // 2, dtype=torch.uint8, device="cuda")
must(allocated(spare) >= GIB // 2, "use_on_oom: a request that fails elsewhere is served from the pool")
del saved
plain = cuda.MemPool()
refused(torch.OutOfMemoryError, lambda: torch.empty(2 * GIB, dtype=torch.uint8, device="cuda"))
cuda.set_per_process_memory_fraction(1.0)

# A pool on an allocator of its own: here the driver's, through the runtime.
runtime = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart.so" in line))
made, gone = [], []


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
def malloc(size, device, stream):
    out = ctypes.c_void_p()
    made.append(size)
    return out.value if runtime.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(size)) == 0 else None


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
def free(ptr, size, device, stream):
    gone.append(size)
    runtime.cudaFree(ctypes.c_void_p(ptr))


custom = torch._C._cuda_customAllocator(*(ctypes.cast(hook, ctypes.c_void_p).value for hook in (malloc, free)))
own = cuda.MemPool(custom)
with cuda.use_mem_pool(own):
    foreign = torch.full((1024,), 5, dtype=torch.uint8, device="cuda")
    del foreign
    foreign = torch.full((1024,), 6, dtype=torch.uint8, device="cuda")
    beside = torch.full((1024,), 7, dtype=torch.uint8, device="cuda")
must(made == [2 * MIB] and int(foreign[-1]) == 6, "a MemPool's own allocator is asked for a segment, which blocks share")
must(int(beside[-1]) == 7 and allocated(own) == 2048, "each with its own part")
del beside
del foreign, own
gc.collect()
must(gone != [], "and given back with the pool")
finish()
