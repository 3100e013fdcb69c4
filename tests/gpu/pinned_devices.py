"""Pinned memory and several devices: the node of the current one, streams of each, memory that each uses. Needs two GPUs.

    python3 tests/gpu/pinned_devices.py

Contexts are made current through libcuda itself, so it needs nothing but Python and the library. Exits with 77 where there are
fewer than two GPUs.
"""

import ctypes
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
os.environ.setdefault("FOREBAY_DRIVER", "cuda")

import forebay

SIZE = 8 << 20
HOST_NUMA_ID = 134  # CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    print(f"skipped: two GPUs are needed, and there is no driver: {error}")
    sys.exit(77)


def must(code):
    if code:
        sys.exit(f"libcuda answers {code}")


def device_of(ordinal):
    device = ctypes.c_int()
    must(cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    return device


def node_of(ordinal):
    node = ctypes.c_int()
    must(cuda.cuDeviceGetAttribute(ctypes.byref(node), HOST_NUMA_ID, device_of(ordinal)))
    return node.value


def make_current(ordinal):
    """As `cudaSetDevice` does; None: no context at all."""
    context = ctypes.c_void_p()
    if ordinal is not None:
        must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device_of(ordinal)))
    must(cuda.cuCtxSetCurrent(context))


def current():
    device = ctypes.c_int(-1)
    return device.value if cuda.cuCtxGetDevice(ctypes.byref(device)) == 0 else None


def nodes(count):
    told = [node_of(ordinal) for ordinal in range(count)]
    print(f"  nearest nodes: {told}")
    for ordinal in (*range(count), None):
        make_current(ordinal)
        for resource in (
            forebay.PinnedMemoryResource({"ipc_enabled": True}),
            forebay.PinnedMemoryResource(forebay.PinnedMemoryResourceOptions(ipc_enabled=True, numa_id=None)),
        ):
            assert resource.numa_id == told[ordinal or 0], (ordinal, resource.numa_id, told)
            mapped = forebay.PinnedMemoryResource.from_allocation_handle(resource.get_allocation_handle())
            assert mapped.numa_id == resource.numa_id, (mapped.numa_id, resource.numa_id)
            unnamed = forebay.PinnedMemoryResource.from_allocation_handle(int(resource.get_allocation_handle()))
            # Without the pool's name only libcuda knows, from 13.1 on.
            assert unnamed.numa_id in (-1, resource.numa_id), unnamed.numa_id
            print(f"  current device {ordinal}: node {resource.numa_id}; mapped without its name: {unnamed.numa_id}")
        assert current() == (None if ordinal is None else device_of(ordinal).value), "another context is current"
    answers = []
    thread = threading.Thread(
        target=lambda: (make_current(1), answers.append(forebay.PinnedMemoryResource({"ipc_enabled": True}).numa_id))
    )
    thread.start()
    thread.join()
    assert answers == [told[1]], "the current device is the thread's"


def resources():
    """One of each kind, made with whichever context is current."""
    yield "the current pool", forebay.PinnedMemoryResource()
    yield "a new pool", forebay.PinnedMemoryResource({})
    yield "a shared pool", forebay.PinnedMemoryResource({"ipc_enabled": True})
    yield "a pool on a node", forebay.PinnedMemoryResource({"numa_id": max(node_of(1), 0)})
    yield "page-locked memory", forebay.HostMemoryResource()
    yield "managed memory", forebay.ManagedMemoryResource({})
    yield "Forebay's pinned pool", forebay.PoolMemoryResource(0, forebay.Pool(pinned=True))
    yield (
        "virtual memory of the host",
        forebay.VirtualMemoryResource(0, {"location_type": "host_numa", "handle_type": None, "peers": [1]}),
    )


def use(what, resource, own, other):
    """Allocates, fills, copies and frees with the streams of two devices."""
    for round_ in range(5):
        pattern = bytes((round_ + 1, 100 + round_))
        there = forebay.PoolMemoryResource(other.device_id).allocate(SIZE, other)
        buffer, back = resource.allocate(SIZE, other), resource.allocate(SIZE, own)
        own.sync()  # the allocation on it precedes the use on the other
        buffer.fill(round_, stream=other)
        buffer.fill(pattern, stream=other)
        there.copy_from(buffer, stream=other)
        back.copy_from(there, stream=other)
        with buffer.copy_to(stream=other) as third:
            other.sync()
            back.copy_from(third, stream=own)
            own.sync()
        seen = bytes(back.as_memoryview())
        assert seen == pattern * (SIZE // 2), f"{what}: other bytes with streams of {own.device_id} and {other.device_id}"
        buffer.close(own)
        back.close(other)
        there.close()
    # Work still under way when the buffer is closed, and the memory asked for again at once.
    for _ in range(20):
        buffer = resource.allocate(SIZE, other)
        for value in range(10):
            buffer.fill(value, stream=other)
        buffer.close()
    other.sync()


def main():
    count = ctypes.c_int(0)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value < 2:
        print("skipped: two GPUs are needed")
        return 77
    nodes(2)
    for ordinal in (0, 1, None):
        make_current(ordinal)
        first, second = forebay.Stream(0), forebay.Stream(1)
        for what, resource in resources():
            use(what, resource, first, second)
            use(what, resource, second, first)
            if isinstance(resource, forebay.PinnedMemoryResource):
                # Default streams: those of the device that was current.
                with resource.allocate(SIZE) as buffer:
                    buffer.fill(9, stream=None)
                    assert bytes(buffer.as_memoryview()) == b"\x09" * SIZE, what
            print(f"  current device {ordinal}: {what}")
        for stream in (first, second):
            stream.sync()
            stream.close()
        assert current() == (None if ordinal is None else device_of(ordinal).value), "another context is current"
    for device in (0, 1):
        forebay._core.pool_check(forebay._pool.shared_pool(), device)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
