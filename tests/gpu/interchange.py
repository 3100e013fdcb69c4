"""Buffers of Forebay in PyTorch, CuPy, Numba and cuda.core, and their arrays in Forebay: one memory, no copy.

    python3 tests/gpu/interchange.py        needs a GPU and the four libraries

Each check compares addresses, writes on one side and reads on the other.
"""

import gc
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import cupy
import numpy
import torch

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack  # numba-cuda 0.30 wants the name that NumPy 2.5 dropped
import forebay
from cuda.core import Buffer as CoreBuffer
from cuda.core import Device
from numba import cuda as numba_cuda

SIZE = 1 << 20


def resources():
    return {
        "shared pool": forebay.PoolMemoryResource(0),
        "driver pool": forebay.DeviceMemoryResource(0),
        "virtual memory": forebay.VirtualMemoryResource(0),
        "managed memory": forebay.ManagedMemoryResource(),
    }


def pinned_resources():
    return {
        "driver's pinned pool": forebay.PinnedMemoryResource(),
        "own pinned pool": forebay.PoolMemoryResource(0, forebay.Pool(pinned=True)),
        "plain pinned": forebay.HostMemoryResource(),
    }


def filled(resource, value):
    with forebay.Stream() as stream:
        buffer = resource.allocate(SIZE, stream=stream)
        buffer.fill(value, stream=stream)
        stream.sync()
    return buffer


def to_torch(name, resource):
    buffer = filled(resource, 3)
    tensor = torch.from_dlpack(buffer)
    assert tensor.data_ptr() == int(buffer.handle), name
    assert tensor.shape == (buffer.size,) and tensor.dtype == torch.int8
    assert int(tensor.sum(dtype=torch.int64)) == 3 * buffer.size
    tensor += 4
    torch.cuda.synchronize()
    assert int(cupy.asarray(torch.as_tensor(tensor))[-1]) == 7
    view = torch.as_tensor(buffer, device="cuda") if hasattr(buffer, "__cuda_array_interface__") else None
    if view is not None:
        assert view.data_ptr() == int(buffer.handle)
        del view
    # The memory lives as long as the tensor, also when the buffer is closed.
    buffer.close()
    assert int(tensor[0]) == 7
    del tensor
    gc.collect()


def to_cupy(name, resource):
    buffer = filled(resource, 5)
    for array in (cupy.from_dlpack(buffer), cupy.asarray(buffer)):
        assert array.data.ptr == int(buffer.handle), name
        assert int(array.sum(dtype=cupy.int64)) == 5 * buffer.size
        del array
    gc.collect()
    buffer.close()


def to_numba(name, resource):
    buffer = filled(resource, 6)
    array = numba_cuda.as_cuda_array(buffer)
    assert array.device_ctypes_pointer.value == int(buffer.handle), name

    @numba_cuda.jit
    def add(values, what):
        i = numba_cuda.grid(1)
        if i < values.size:
            values[i] += what

    add[(array.size + 255) // 256, 256](array, 2)
    numba_cuda.synchronize()
    assert (array.copy_to_host() == 8).all()
    del array
    buffer.close()


def to_numpy(name, resource):
    buffer = filled(resource, 9)
    view = numpy.from_dlpack(buffer)
    assert view.ctypes.data == int(buffer.handle) and (view == 9).all(), name
    if sys.version_info >= (3, 12):
        assert memoryview(buffer)[17] == 9
    again = numpy.frombuffer(buffer.as_memoryview(), dtype=numpy.uint8)
    again[:] = 11
    assert (view == 11).all()
    # PyTorch takes no pinned memory by DLPack; by way of NumPy it does, and sees that it is pinned.
    pinned = torch.from_numpy(view)
    assert pinned.is_pinned() and pinned.data_ptr() == int(buffer.handle), name
    on_gpu = torch.empty(buffer.size, dtype=torch.int8, device="cuda")
    on_gpu.copy_(pinned, non_blocking=True)
    torch.cuda.synchronize()
    assert int(on_gpu.sum(dtype=torch.int64)) == 11 * buffer.size
    del view, again, pinned
    gc.collect()
    buffer.close()


def from_others():
    seen = forebay.PinnedMemoryResource()
    stream = forebay.Stream()

    def check(what, buffer, address, value):
        assert int(buffer.handle) == address and buffer.size == SIZE, what
        with seen.allocate(SIZE, stream=stream) as copy:
            copy.copy_from(buffer, stream=stream)
            stream.sync()
            assert (numpy.frombuffer(copy.as_memoryview(), dtype=numpy.uint8) == value).all(), what
        buffer.close()
        print(f"  Forebay reads {what}")

    tensor = torch.full((SIZE // 4,), 0x01010101, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    check("a PyTorch tensor (DLPack)", forebay.Buffer.from_dlpack(tensor), tensor.data_ptr(), 1)
    check("a PyTorch tensor (array interface)", forebay.Buffer.from_cuda_array_interface(tensor), tensor.data_ptr(), 1)
    array = cupy.full(SIZE, 2, dtype=cupy.uint8)
    check("a CuPy array (DLPack)", forebay.Buffer.from_dlpack(array), array.data.ptr, 2)
    check("a CuPy array (array interface)", forebay.Buffer.from_cuda_array_interface(array), array.data.ptr, 2)
    device = numba_cuda.to_device(numpy.full(SIZE, 3, dtype=numpy.uint8))
    check("a Numba array", forebay.Buffer.from_cuda_array_interface(device), device.device_ctypes_pointer.value, 3)
    core = Device(0)
    core.set_current()
    theirs = core.allocate(SIZE, stream=core.default_stream)
    theirs.fill(4, stream=core.default_stream)
    core.sync()
    check("a cuda.core buffer (DLPack)", forebay.Buffer.from_dlpack(theirs), int(theirs.handle), 4)
    ours = filled(forebay.PoolMemoryResource(0), 5)
    wrapped = CoreBuffer.from_handle(int(ours.handle), ours.size, owner=ours)
    target = core.allocate(SIZE, stream=core.default_stream)
    wrapped.copy_to(target, stream=core.default_stream)
    core.sync()
    assert int(cupy.from_dlpack(target)[SIZE - 1]) == 5
    print("  cuda.core copies a Forebay buffer")
    transposed = cupy.zeros((4, 8)).T
    try:
        forebay.Buffer.from_dlpack(transposed)
    except ValueError as error:
        print(f"  refused, as it must be: {error}")
    else:
        raise AssertionError("a transposed array was taken")
    host = numpy.arange(16, dtype=numpy.int16)
    with forebay.Buffer.from_dlpack(host) as buffer:
        assert buffer.size == 32 and int(buffer.handle) == host.ctypes.data and not buffer.is_device_accessible


def main():
    torch.zeros(1, device="cuda")
    for name, resource in resources().items():
        for what in (to_torch, to_cupy, to_numba):
            if "managed" in name and what is to_torch:
                continue  # PyTorch takes no managed memory by DLPack
            what(name, resource)
            print(f"  {what.__name__[3:]} reads a buffer of {name}")
    for name, resource in pinned_resources().items():
        to_numpy(name, resource)
        print(f"  NumPy and PyTorch read a buffer of {name}")
    from_others()
    print("ok")


if __name__ == "__main__":
    main()
