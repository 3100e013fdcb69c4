"""Buffers: memory with its size, its resource, and the order in which it is freed."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any, Optional, cast

from . import _dlpack, _interface, _ipc, _library
from . import _release as releases
from . import _structs as s
from ._arguments import as_pointer, as_size
from ._errors import ClosedError, Status, check, failure
from ._exchange import Exchange
from ._hot import BufferBase, connect
from ._resources._base import MemoryResource
from ._stream import resolve
from .typing import DevicePointerType, StreamLike

_close = _library.forebay_buffer_close
_close_on = _library.forebay_buffer_close_on
_get_info = _library.forebay_buffer_get_info


#: By the numbers of FOREBAY_IPC_PATH_*.
_PATHS = (None, "pool", "fd", "fabric", "legacy")


class _Special:
    """What few buffers have: an owner, memory that Python takes back, a descriptor for other processes."""

    __slots__ = ("descriptor", "owner", "release")

    def __init__(
        self,
        owner: object = None,
        release: Optional[releases.Release] = None,
        descriptor: Optional[_ipc.IPCBufferDescriptor] = None,
    ) -> None:
        self.owner, self.release, self.descriptor = owner, release, descriptor


class Buffer(Exchange, BufferBase):
    """Memory that a resource gave, that another process shares, or that somebody else owns (document 001).

    Buffers are made by a resource's ``allocate`` and by the ``from_*`` functions here. A buffer is closed by :meth:`close`,
    at the end of a ``with`` block, or when it is collected; the memory itself is free when the views and DLPack tensors made
    of it are gone too. Any thread may use a buffer.

    Two buffers are equal when they are the same bytes: same address, same size.
    """

    __slots__ = ("__weakref__",)

    _info: Optional[s.BufferInfo]
    _special: Optional[_Special]

    def __new__(cls, *_: object, **__: object) -> Buffer:
        raise RuntimeError("a Buffer is made by a resource's allocate, Buffer.from_handle, from_dlpack or from_ipc_descriptor")

    # ---- making one

    @staticmethod
    def from_handle(
        ptr: DevicePointerType,
        size: int,
        mr: Optional[MemoryResource] = None,
        owner: object = None,
        *,
        stream: StreamLike = None,
    ) -> Buffer:
        """A buffer of memory that exists already.

        Parameters
        ----------
        ptr : int or handle
            Its address.
        size : int
            Its size in bytes.
        mr : MemoryResource, optional
            Takes the memory back when the buffer ends: the buffer owns it.
        owner : object, optional
            Kept as long as the memory is used; not together with `mr`. With neither, the memory is the caller's.
        stream : stream, optional
            In whose order the memory is freed.

        Raises
        ------
        ValueError
            For `mr` and `owner` together, or a number out of range.
        TypeError
            If `mr` is no MemoryResource.

        Notes
        -----
        Document 001; `owner` and `stream` are newer cuda.core's.
        """
        if mr is not None and owner is not None:
            raise ValueError("mr and owner were both given: either the resource frees the memory or its owner does")
        if mr is not None and not isinstance(mr, MemoryResource):
            raise TypeError(f"mr is a {type(mr).__name__}: it must be a MemoryResource")
        address, size = as_pointer(ptr), as_size(size)
        raw, keep = resolve(stream)
        out = c_void_p()
        create = _library.forebay_buffer_from_handle
        if mr is not None and mr._handle is not None:
            check(create(address, size, mr._handle, None, None, raw, out))
            return Buffer._of(out.value, mr, keep)
        if mr is None and owner is None:
            check(create(address, size, None, None, None, raw, out))
            return Buffer._of(out.value, None, keep)
        entry = releases.add(owner, mr, address, size, stream)
        status = create(address, size, None, releases.FUNCTION, entry.number, raw, out)
        if status:
            releases.forget(entry)
            raise failure(status)
        buffer = Buffer._of(out.value, mr, keep)
        buffer._special = _Special(owner=owner, release=entry)
        return buffer

    @staticmethod
    def from_dlpack(obj: Any, stream: StreamLike = None) -> Buffer:
        """A buffer of the bytes of a DLPack exporter or capsule, which lives as long as the buffer.

        Parameters
        ----------
        obj : object with ``__dlpack__``, or a DLPack capsule
            A contiguous tensor of any type.
        stream : stream, optional
            Passed to the exporter, which makes its work precede what is queued there; the stream of the buffer.

        Raises
        ------
        TypeError
            If it is neither.
        BufferError
            If the exporter refuses.
        ValueError
            If the tensor is not contiguous, or the capsule was used before.
        """
        raw, keep = resolve(stream)
        return Buffer._of(_dlpack.take(obj, stream is not None, raw), None, keep)

    @staticmethod
    def from_cuda_array_interface(obj: Any) -> Buffer:
        """A buffer of the bytes of an object with ``__cuda_array_interface__``, which is kept as the owner.

        The stream that the interface names becomes the buffer's: work queued there comes after the producer's.

        Raises
        ------
        TypeError
            If there is no such interface.
        ValueError
            If the array is not contiguous, or is read-only.

        Notes
        -----
        CUDA Array Interface, version 3, in Numba's documentation.
        """
        address, size, stream = _interface.read(obj)
        return Buffer.from_handle(address, size, owner=obj, stream=stream)

    @classmethod
    def from_ipc_descriptor(
        cls,
        mr: Optional[MemoryResource],
        ipc_buffer: Optional[_ipc.IPCBufferDescriptor] = None,
        stream: StreamLike = None,
        *,
        ipc_descriptor: Optional[_ipc.IPCBufferDescriptor] = None,
    ) -> Buffer:
        """A buffer that another process exported (document 001).

        Parameters
        ----------
        mr : MemoryResource or None
            For memory of a driver pool the mapped resource; for a virtual buffer a resource of that kind, or None.
        ipc_buffer, ipc_descriptor : IPCBufferDescriptor
            What the exporter gave; both names mean the same.
        stream : stream, optional
            In whose order the buffer is closed.

        Raises
        ------
        RuntimeError
            If the resource is not made for sharing, or the exporter is gone.
        ValueError
            If the descriptor is damaged or of another kind of memory.
        """
        descriptor = ipc_buffer if ipc_descriptor is None else ipc_descriptor
        if not isinstance(descriptor, _ipc.IPCBufferDescriptor):
            raise TypeError(f"the descriptor is a {type(descriptor).__name__}: it must be an IPCBufferDescriptor")
        if mr is not None and (not isinstance(mr, MemoryResource) or mr._handle is None):
            raise TypeError(f"mr is a {type(mr).__name__}: it must be a resource of this library, or None")
        raw, keep = resolve(stream)
        handle = _ipc.import_buffer(mr._handle if mr is not None else None, descriptor, raw)
        buffer = cls._of(handle, mr, keep)
        buffer._special = _Special(descriptor=descriptor)
        return buffer

    # ---- its end

    def _close_with(self, stream: StreamLike) -> None:
        special = self._special
        if special is not None and special.release is not None:
            self._close_python(special.release, stream)
        else:
            check(_close(self._handle) if stream is None else _close_on(self._handle, resolve(stream)[0]))

    def _close_python(self, entry: releases.Release, stream: StreamLike) -> None:
        kept, entry.inside_close = entry.stream, True
        if stream is not None:
            entry.stream = stream
        try:
            check(_close(self._handle) if stream is None else _close_on(self._handle, resolve(stream)[0]))
        except BaseException:
            entry.stream = kept
            raise
        finally:
            entry.inside_close = False
        if entry.error is not None:
            raise entry.error

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what it is

    def _look(self) -> s.BufferInfo:
        info = self._info
        if info is None:
            info = s.BufferInfo(size=s.BUFFER_INFO_SIZE, version=s.VERSION)
            check(_get_info(self._handle, info))
            # Nothing of it changes but by a close or a modify_allocation, and both forget it.
            if not info.is_closed:
                self._info = info
        return info

    def _open(self) -> s.BufferInfo:
        info = self._look()
        if info.is_closed:
            raise ClosedError("the buffer is closed: its memory was given back", Status.CLOSED)
        return info

    @property
    def handle(self) -> int:
        """The address; 0 for a closed or empty buffer."""
        info = self._look()
        return 0 if info.is_closed else int(info.handle)

    @property
    def size(self) -> int:
        """The size in bytes; 0 for a closed buffer. A virtual buffer's is rounded up to the granularity."""
        info = self._look()
        return 0 if info.is_closed else int(info.bytes)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._look().is_closed)

    @property
    def device_id(self) -> int:
        """The device of the memory; -1 for memory that belongs to none."""
        return self._of_python().device_id if self._is_python() else int(self._open().device_id)

    @property
    def is_device_accessible(self) -> bool:
        """Whether a device may use the memory."""
        return self._of_python().is_device_accessible if self._is_python() else bool(self._open().is_device_accessible)

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host may use the memory."""
        return self._of_python().is_host_accessible if self._is_python() else bool(self._open().is_host_accessible)

    @property
    def is_managed(self) -> bool:
        """Whether the memory is CUDA managed memory."""
        return self._of_python().is_managed if self._is_python() else bool(self._open().is_managed)

    @property
    def is_mapped(self) -> bool:
        """Whether the memory was imported from another process."""
        return bool(self._look().is_mapped)

    @property
    def ipc_path(self) -> Optional[str]:
        """How the memory came into this process: ``"pool"`` with a pool of the driver, ``"fd"`` or ``"fabric"`` as physical
        memory, ``"legacy"`` by a cuIpc handle; None for the process's own."""
        return _PATHS[self._open().ipc_path]

    @property
    def memory_resource(self) -> Optional[MemoryResource]:
        """The resource that the memory goes back to; None if there is none, or the buffer is closed."""
        info = self._look()
        if info.is_closed:
            return None
        if self._resource is None and info.has_resource:
            out = c_void_p()
            check(_library.forebay_buffer_get_resource(self._handle, out))
            # Late, since that module needs this one.
            from ._resources._library_resource import LibraryResource

            self._resource = LibraryResource._wrap(out.value)
        return self._resource

    @property
    def owner(self) -> object:
        """What `from_handle` or `from_cuda_array_interface` keeps for the memory; None if nothing."""
        return self._special.owner if self._special is not None else None

    def _remember(self, descriptor: Optional[_ipc.IPCBufferDescriptor]) -> None:
        """Keeps the descriptor for the next who asks. None forgets it, with all that a change of size makes untrue."""
        if self._special is None:
            self._special = _Special()
        self._special.descriptor = descriptor
        self._info = None

    def _is_python(self) -> bool:
        return self._resource is not None and self._resource._handle is None

    def _of_python(self) -> MemoryResource:
        self._open()
        return cast(MemoryResource, self._resource)

    # ---- copies

    def copy_to(self, dst: Optional[Buffer] = None, *, stream: StreamLike) -> Buffer:
        """Queues a copy of this buffer on `stream` and answers the destination (document 001).

        Parameters
        ----------
        dst : Buffer, optional
            A buffer of the same size; None: a new one of this buffer's resource.
        stream : stream
            The copy is done in its order. The caller orders it after the work that wrote this buffer.

        Raises
        ------
        ValueError
            If the sizes differ, or there is neither `dst` nor a resource.
        RuntimeError
            If a buffer is closed.
        """
        raw, keep = resolve(stream)
        if dst is None and self._is_python():
            dst = self._of_python().allocate(self.size, stream=stream)
        if dst is None:
            out = c_void_p()
            check(_library.forebay_buffer_clone(self._handle, raw, out))
            return Buffer._of(out.value, self._resource, keep)
        check(_library.forebay_buffer_copy(_as_buffer(dst, "dst")._handle, self._handle, raw))
        return dst

    def copy_from(self, src: Buffer, *, stream: StreamLike) -> None:
        """Queues a copy of `src`, of the same size, into this buffer on `stream` (document 001)."""
        check(_library.forebay_buffer_copy(self._handle, _as_buffer(src, "src")._handle, resolve(stream)[0]))

    def fill(self, value: Any, *, stream: StreamLike) -> None:
        """Queues filling the buffer on `stream`.

        Parameters
        ----------
        value : int or bytes-like
            One byte, as a number from 0 to 255; or 1, 2 or 4 bytes, which are repeated and must divide the size.
        stream : stream
            The fill is done in its order.

        Raises
        ------
        OverflowError
            If the number is not that of a byte.
        ValueError
            If the bytes are not 1, 2 or 4, or do not divide the size.
        """
        if isinstance(value, int):
            if not 0 <= value <= 255:
                raise OverflowError(f"value is {value}: a byte is from 0 to 255; longer patterns are given as bytes")
            width = 1
        else:
            pattern = bytes(memoryview(value))
            value, width = int.from_bytes(pattern, "little"), len(pattern)
            if width not in (1, 2, 4):
                raise ValueError(f"the pattern has {width} bytes: it must have 1, 2 or 4")
        check(_library.forebay_buffer_fill(self._handle, value, width, resolve(stream)[0]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Buffer):
            return NotImplemented
        return self is other or (self.handle, self.size) == (other.handle, other.size)

    def __hash__(self) -> int:
        return hash((self.handle, self.size))

    def __repr__(self) -> str:
        if self.is_closed:
            return "<forebay.Buffer closed>"
        mapped = " is_mapped=True" if self.is_mapped else ""
        return f"<forebay.Buffer ptr={self.handle:#x} size={self.size}{mapped}>"


def _as_buffer(buffer: Any, name: str) -> Buffer:
    if not isinstance(buffer, Buffer):
        raise TypeError(f"{name} is a {type(buffer).__name__}: it must be a Buffer")
    return buffer


connect(Buffer)
