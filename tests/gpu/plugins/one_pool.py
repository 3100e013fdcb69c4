"""One pool and one limit: what one framework gives back serves the next, in order, without a wait for the device; garbage
and foreign caches are asked before a request fails."""

import gc
import time

from common import GIB, MIB, cupy_spin, forebay, must, numpy, ok, refused, stats, verify

import cupy
from cuda.core import Device
from numba import cuda

try:
    forebay.torch.install()
    import torch
except ImportError:
    torch = None  # without forebay.torch PyTorch's own cache is a foreign one: see below

LIMIT, SHARE = 4 * GIB, 3 * GIB
Device(0).set_current()
forebay.numba.install()
forebay.cupy.install()
mr = forebay.cuda_core.install(0)
forebay.Pool.shared().set_limit(LIMIT)
stream = Device(0).create_stream()

takers = {
    "cupy": lambda: [cupy.full(MIB, 1, dtype=cupy.uint8), cupy.empty(SHARE - MIB, cupy.uint8)],
    "numba": lambda: cuda.device_array(SHARE, numpy.uint8),
    "cuda_core": lambda: mr.allocate(SHARE, stream=stream),
}
if torch is not None:
    takers["torch"] = lambda: torch.empty(SHARE, dtype=torch.uint8, device="cuda")
for round_ in range(3):
    for name, take in takers.items():
        held = take()
        if stats().live_by_framework[name] < SHARE:
            must(False, f"round {round_}: {name} has 3 GiB of the shared pool")
        del held
must(stats().physical_peak <= LIMIT and stats().out_of_memory == 0, f"{', '.join(takers)} in turn under one limit")

# Ordered on the device: the host does not wait for work that is pending when memory changes hands.
spin, slow = cupy_spin(), cupy.cuda.Stream(non_blocking=True)
spin(1)
cupy.cuda.Device().synchronize()
if torch is None:
    other = cupy.cuda.Stream(non_blocking=True)

    def take():
        with other:
            return cupy.full(SHARE, 2, dtype=cupy.uint8)

    result, wait = int, other.synchronize
else:
    side = torch.cuda.Stream()

    def take():
        with torch.cuda.stream(side):
            return torch.full((SHARE,), 2, dtype=torch.uint8, device="cuda")

    result, wait = int, side.synchronize
# The first kernel of a kind waits for the device while it is loaded.
taken = take()
wait()
del taken
with slow:
    source = cupy.full(SHARE, 1, dtype=cupy.uint8)
    tail = cupy.empty(MIB, cupy.uint8)
    spin(400)
    tail[:] = source[:MIB]
    del source
start = time.perf_counter()
taken = take()
elapsed = time.perf_counter() - start
pending = not slow.done
must(pending and elapsed < 0.3, f"another stream has it after {elapsed * 1000:.1f} ms, while 400 ms of work are pending")
wait()
slow.synchronize()
must(int(tail.min()) == int(tail.max()) == 1 and result(taken[0]) == result(taken[-1]) == 2, "and both are right")
del taken, tail

# Garbage: cycles that only a collection ends.


class Cycle:
    def __init__(self, memory):
        self.memory, self.me = memory, self


gc.disable()
for take in takers.values():
    Cycle(take())
    for other_take in takers.values():
        held = other_take()  # fails unless the cycle is collected
        del held
        Cycle(other_take())
    gc.collect()
gc.enable()
must(True, "garbage is collected before a request fails")
kept = cupy.empty(SHARE, cupy.uint8)
for name, kind in (("numba", MemoryError), ("cuda_core", MemoryError)):
    refused(kind, takers[name], "out of memory", "limit")
refused(cupy.cuda.memory.OutOfMemoryError, takers["cupy"], "limit")
if torch is not None:
    refused(torch.OutOfMemoryError, takers["torch"])
del kept

# Caches of others: CuPy's own pool holds nearly everything that is free.
forebay.Pool.shared().set_limit(0)
forebay.Pool.shared().trim()
foreign = cupy.get_default_memory_pool()
with cupy.cuda.using_allocator(foreign.malloc):
    cache = cupy.empty(cupy.cuda.runtime.memGetInfo()[0] - 6 * GIB, cupy.uint8)
del cache
must(foreign.free_bytes() > 10 * GIB, f"CuPy's own pool holds {foreign.free_bytes() // GIB} GiB that nobody uses")
held = cupy.empty(12 * GIB, cupy.uint8)
must(foreign.total_bytes() == 0, "it is emptied before a request fails")
del held
cupy.cuda.Device().synchronize()
verify()
ok()
