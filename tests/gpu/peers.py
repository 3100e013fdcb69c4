"""Memory of one GPU used by another: pools of Forebay and of the driver, virtual memory. Needs two GPUs.

    python3 tests/gpu/peers.py

A plain cudaMemcpyAsync between two devices needs access on both sides for memory made of virtual mappings, and fails
without it; with it the copy goes over the link between them.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import cupy
import forebay

SIZE = 256 << 20
ADD = cupy.ElementwiseKernel("int8 x, int8 y", "int8 z", "z = x + y", "add_for_peers")


def seen_by(device, address, size, owner):
    """The bytes as a kernel of `device` reads and writes them."""
    with cupy.cuda.Device(device):
        memory = cupy.cuda.UnownedMemory(address, size, owner, device)
        array = cupy.ndarray((size,), cupy.int8, cupy.cuda.MemoryPointer(memory, 0))
        ADD(array, cupy.int8(1), array)
        cupy.cuda.Device(device).synchronize()
        return int(array[:4096].sum(dtype=cupy.int64)), int(array[-1])


def check(what, resource, grow=False):
    buffer = resource.allocate(SIZE)
    with cupy.cuda.Device(0), forebay.Stream(0) as stream:
        buffer.fill(3, stream=stream)
        stream.sync()
    assert seen_by(1, int(buffer.handle), SIZE, buffer) == (4 * 4096, 4), what
    with cupy.cuda.Device(1):
        target = cupy.empty(SIZE, dtype=cupy.int8)
        stream = cupy.cuda.Stream(non_blocking=True)
        times = []
        for _ in range(5):
            stream.synchronize()
            start = time.perf_counter()
            cupy.cuda.runtime.memcpyAsync(target.data.ptr, int(buffer.handle), SIZE, 4, stream.ptr)
            stream.synchronize()
            times.append(time.perf_counter() - start)
        assert int(target[-1]) == 4
    print(f"  device 1 uses {what}; copies at {SIZE / min(times) / 1e9:.0f} GB/s")
    buffer.close()


def main():
    if cupy.cuda.runtime.getDeviceCount() < 2:
        print("skipped: two GPUs are needed")
        return 77
    for device in (0, 1):
        with cupy.cuda.Device(device):
            cupy.zeros(1)
    cupy.cuda.Device(1).use()
    cupy.cuda.runtime.deviceEnablePeerAccess(0)
    pool = forebay.PoolMemoryResource(0)
    assert pool.peer_access(1) is None, pool.peer_access(1)
    before = pool.allocate(SIZE)
    pool.set_peer_access(1, "rw")
    assert pool.peer_access(1) == "rw"
    check("the shared pool, mapped before and after", pool)
    with cupy.cuda.Device(0), forebay.Stream(0) as stream:
        before.fill(7, stream=stream)
        stream.sync()
    assert seen_by(1, int(before.handle), SIZE, before) == (8 * 4096, 8)
    before.close()
    check("a pool of 4 GiB chunks and growth", pool)
    driver_pool = forebay.DeviceMemoryResource(0, {})
    driver_pool.peer_accessible_by = [1]
    assert 1 in driver_pool.peer_accessible_by
    check("a pool of the driver", driver_pool)
    driver_pool.peer_accessible_by = []
    assert 1 not in driver_pool.peer_accessible_by
    check("virtual memory with a peer", forebay.VirtualMemoryResource(0, {"peers": [1]}))
    reading = forebay.VirtualMemoryResource(0, {"peers": [1], "peer_access": "r"})
    assert reading.peer_access(1) == "r" and reading.allocate(1).size == 2 << 20
    pool.set_peer_access(1, None)
    assert pool.peer_access(1) is None
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
