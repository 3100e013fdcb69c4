"""What crosses from one process to another: descriptors of buffers and handles of pools."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional
from uuid import UUID

from .. import _core
from .._arguments import as_pointer, as_size
from .._pool import Pool, shared_pool
from ..typing import DevicePointerType, SizeLike


class IPCBufferDescriptor:
    """What another process needs to import a buffer: plain bytes, which may be sent and stored anywhere.

    It keeps nothing alive: the exporter keeps the buffer open until the other process has imported it. It is as
    trustworthy as the one who sent it.
    """

    __slots__ = ("_payload", "_size")

    _payload: bytes
    _size: int

    def __new__(cls, *_: object, **__: object) -> IPCBufferDescriptor:
        raise RuntimeError("an IPCBufferDescriptor is made by Buffer.get_ipc_descriptor, export_pointer or from_bytes")

    @classmethod
    def from_bytes(cls, data: Any) -> IPCBufferDescriptor:
        """The descriptor that `bytes` of another one gave, or the ``forebay_ipc_descriptor`` of a C program.

        Raises
        ------
        ValueError
            If it is none.
        """
        self = object.__new__(cls)
        self._payload = bytes(memoryview(data))
        self._size = _core.ipc_descriptor_size(self._payload)
        return self

    def __bytes__(self) -> bytes:
        return self._payload

    @property
    def size(self) -> int:
        """The size of the buffer in bytes, as the descriptor says; an import compares it with the memory."""
        return self._size

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).from_bytes, (self._payload,)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IPCBufferDescriptor):
            return NotImplemented
        return self._payload == other._payload

    def __hash__(self) -> int:
        return hash(self._payload)

    def __repr__(self) -> str:
        return f"<forebay.IPCBufferDescriptor size={self._size}>"


class IPCAllocationHandle:
    """The handle of a pool that can be shared: a file descriptor, closed on exec, and the pool's key.

    Closing it, or its collection, closes the descriptor, and nothing else: pools mapped through it stay. It is sent by
    `multiprocessing`, or as a descriptor over a Unix socket.
    """

    __slots__ = ("__weakref__", "_handle", "_uuid")

    _handle: int
    _uuid: Optional[UUID]

    def __new__(cls, *_: object, **__: object) -> IPCAllocationHandle:
        raise RuntimeError("an IPCAllocationHandle is made by a resource's get_allocation_handle")

    @classmethod
    def _init(cls, handle: int, uuid: Optional[UUID]) -> IPCAllocationHandle:
        """Takes a descriptor over."""
        self = object.__new__(cls)
        self._handle, self._uuid = handle, uuid
        return self

    def close(self) -> None:
        """Closes the descriptor. Twice is harmless."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self._handle >= 0:
            _close(self._handle)

    def __int__(self) -> int:
        if self._handle < 0:
            raise ValueError("the allocation handle is closed: ask the resource for another one")
        return self._handle

    @property
    def handle(self) -> int:
        """The file descriptor; -1 once closed."""
        return self._handle

    @property
    def uuid(self) -> Optional[UUID]:
        """The pool's key."""
        return self._uuid

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._handle < 0

    def __enter__(self) -> IPCAllocationHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a file descriptor cannot be pickled: send the handle through multiprocessing, while a process starts")

    def __repr__(self) -> str:
        return f"<forebay.IPCAllocationHandle fd={self._handle} uuid={self._uuid}>"


def export_pointer(ptr: DevicePointerType, *, pool: Optional[Pool] = None) -> IPCBufferDescriptor:
    """A descriptor of memory of a Forebay pool, by any pointer into a live block, as a framework's tensor has one.

    Parameters
    ----------
    ptr : int or handle
        The first byte. The import has everything from there to the block's end.
    pool : Pool, optional
        None: the shared pool.

    Raises
    ------
    ValueError
        If no live block of the pool is there.
    """
    handle = shared_pool() if pool is None else pool._handle
    return IPCBufferDescriptor.from_bytes(_core.ipc_export(handle, as_pointer(ptr)))


def export_foreign(ptr: DevicePointerType, size: SizeLike) -> IPCBufferDescriptor:
    """A descriptor of device memory that came from ``cuMemAlloc`` or ``cudaMalloc``.

    Parameters
    ----------
    ptr : int or handle
        The first byte.
    size : int or str
        The size in bytes.

    Raises
    ------
    ValueError
        If it is no such memory.
    """
    return IPCBufferDescriptor.from_bytes(_core.ipc_export_foreign(as_pointer(ptr), as_size(size)))


def serve() -> None:
    """Starts this process's service for other processes' imports. Exporting starts it too; again is harmless."""
    _core.ipc_serve()
