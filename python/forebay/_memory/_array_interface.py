"""The CUDA Array Interface and Python's own buffers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Optional

from .. import _core
from .._arguments import as_pointer
from .._stream import LEGACY_DEFAULT
from . import _dlpack

if TYPE_CHECKING:
    from ._buffer import Buffer


def describe(buffer: Buffer) -> dict[str, Any]:
    """`Buffer.__cuda_array_interface__`."""
    return {
        "version": 3,
        "shape": (buffer.size,),
        "typestr": "|u1",
        "data": (buffer.handle, False),
        "strides": None,
        # The interface has no 0: the legacy default stream is 1.
        "stream": buffer._open().stream or LEGACY_DEFAULT,
    }


def read(obj: Any) -> tuple[int, int, Optional[int]]:
    """Address, size in bytes and stream of an object with the interface."""
    described = getattr(obj, "__cuda_array_interface__", None)
    if described is None:
        raise TypeError(f"{type(obj).__name__} has no __cuda_array_interface__")
    shape, typestr = tuple(described["shape"]), described["typestr"]
    address, read_only = described["data"]
    if read_only:
        raise ValueError("the array is read-only: a Buffer may be written to")
    if described.get("mask") is not None:
        raise ValueError("the array has a mask: a Buffer is plain bytes")
    item = int(typestr[2:])
    strides = described.get("strides")
    if strides is not None and not _contiguous(shape, tuple(strides), item):
        raise ValueError(f"the array is not contiguous: shape {shape}, strides {tuple(strides)}, items of {item} bytes")
    return as_pointer(address, "data"), prod(shape) * item, described.get("stream")


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    if 0 in shape:
        return True
    expected = item
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def view(buffer: Buffer) -> memoryview:
    """`Buffer.as_memoryview`: the view holds a DLPack tensor, and that holds the memory."""
    if not buffer.is_host_accessible:
        raise BufferError("the host may not use this buffer's memory: copy it into a buffer that it may use")
    _dlpack.order(buffer, None, on_host=True)
    size = buffer.size
    if size == 0:
        return memoryview(bytearray())
    return _core.memory_view(buffer.handle, size, _core.buffer_to_dlpack(buffer._handle, False))
