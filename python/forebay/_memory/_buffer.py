"""Buffers: memory with its size, its resource, and the order in which it is freed."""

from __future__ import annotations

from typing import Any, Optional, cast

from .. import _core
from .._arguments import as_pointer, as_size
from .._errors import ClosedError, Status, failure
from .._stream import Stream, resolve
from ..typing import DevicePointerType, SizeLike, StreamLike
from . import _array_interface, _dlpack, _ipc
from ._exchange import Exchange
from ._library_memory_resource import LibraryMemoryResource
from ._memory_resource import MemoryResource
from ._release import Release

#: By the numbers of ``FOREBAY_IPC_PATH_*``.
_PATHS = {
    _core.IPC_PATH_NONE: None,
    _core.IPC_PATH_POOL: "pool",
    _core.IPC_PATH_FD: "fd",
    _core.IPC_PATH_FABRIC: "fabric",
    _core.IPC_PATH_LEGACY: "legacy",
}


class _Special:
    """What few buffers have: an owner, memory that Python takes back, a descriptor for other processes."""

    __slots__ = ("descriptor", "owner", "release")

    def __init__(
        self,
        owner: object = None,
        release: Optional[Release] = None,
        descriptor: Optional[_ipc.IPCBufferDescriptor] = None,
    ) -> None:
        self.owner, self.release, self.descriptor = owner, release, descriptor


class Buffer(Exchange, _core.BufferBase):
    """Memory that a resource gave, that another process shares, or that somebody else owns.

    Buffers are made by a resource's ``allocate`` and by the ``from_*`` functions here. A buffer is closed by
    :meth:`close`, at the end of a ``with`` block, or when it is collected; the memory itself is free when the views and
    DLPack tensors made of it are gone too. Any thread may use a buffer.

    Two buffers are equal when they are the same bytes: same address, same size.

    The members are those of `cuda.core.Buffer
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.Buffer.html>`_, and more.
    """

    __slots__ = ("__weakref__",)

    _info: Optional[_core.BufferInfo]
    _special: Optional[_Special]

    def __new__(cls, *_: object, **__: object) -> Buffer:
        raise RuntimeError("a Buffer is made by a resource's allocate, Buffer.from_handle, from_dlpack or from_ipc_descriptor")

    # ---- making one

    @staticmethod
    def from_handle(
        ptr: DevicePointerType,
        size: SizeLike,
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
        size : int or str
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
        `owner` and `stream` are those of cuda.core from 0.4 on.
        """
        if mr is not None and owner is not None:
            raise ValueError("mr and owner were both given: either the resource frees the memory or its owner does")
        if mr is not None and not isinstance(mr, MemoryResource):
            raise TypeError(f"mr is a {type(mr).__name__}: it must be a MemoryResource")
        address, size = as_pointer(ptr), as_size(size)
        raw, keep = resolve(stream)
        if mr is not None and mr._handle is not None:
            return Buffer._of(_core.buffer_from_handle(address, size, mr._handle, None, raw), mr, keep)
        if mr is None and owner is None:
            return Buffer._of(_core.buffer_from_handle(address, size, 0, None, raw), None, keep)
        release = Release(owner, mr, address, size, stream)
        buffer = Buffer._of(_core.buffer_from_handle(address, size, 0, release, raw), mr, keep)
        buffer._special = _Special(owner=owner, release=release)
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
        address, size, stream = _array_interface.read(obj)
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
        """A buffer that another process exported.

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
        handle = _core.buffer_from_ipc_descriptor(mr._handle or 0 if mr is not None else 0, bytes(descriptor), raw)
        buffer = cls._of(handle, mr, keep)
        buffer._special = _Special(descriptor=descriptor)
        return buffer

    # ---- its end

    def _close_with(self, stream: StreamLike) -> None:
        special = self._special
        release = special.release if special is not None else None
        if release is None:
            self._close_on(stream)
            return
        kept, release.inside_close = release.stream, True
        if stream is not None:
            release.stream = stream
        try:
            self._close_on(stream)
        except BaseException:
            release.stream = kept
            raise
        finally:
            release.inside_close = False
        if release.error is not None:
            raise release.error

    def _close_on(self, stream: StreamLike) -> None:
        if stream is None:
            _core.buffer_close(self._handle)
        else:
            _core.buffer_close_on(self._handle, resolve(stream)[0])

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what it is

    def _look(self) -> _core.BufferInfo:
        info = self._info
        if info is None:
            info = _core.buffer_get_info(self._handle)
            # Nothing of it changes but by a close or a modify_allocation, and both forget it.
            if not info.is_closed:
                self._info = info
        return info

    def _open(self) -> _core.BufferInfo:
        info = self._look()
        if info.is_closed:
            raise ClosedError("the buffer is closed: its memory was given back", Status.CLOSED)
        return info

    @property
    def handle(self) -> int:
        """The address; 0 for a closed or empty buffer."""
        info = self._look()
        return 0 if info.is_closed else info.handle

    @property
    def size(self) -> int:
        """The size in bytes; 0 for a closed buffer. A virtual buffer's is rounded up to the granularity."""
        info = self._look()
        return 0 if info.is_closed else info.size

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._look().is_closed

    @property
    def device_id(self) -> int:
        """The device of the memory; -1 for memory that belongs to none."""
        return self._of_python().device_id if self._is_python() else self._open().device_id

    @property
    def is_device_accessible(self) -> bool:
        """Whether a device may use the memory."""
        return self._of_python().is_device_accessible if self._is_python() else self._open().is_device_accessible

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host may use the memory."""
        return self._of_python().is_host_accessible if self._is_python() else self._open().is_host_accessible

    @property
    def is_managed(self) -> bool:
        """Whether the memory is CUDA managed memory."""
        return self._of_python().is_managed if self._is_python() else self._open().is_managed

    @property
    def is_mapped(self) -> bool:
        """Whether the memory was imported from another process."""
        return self._look().is_mapped

    @property
    def ipc_path(self) -> Optional[str]:
        """How the memory came into this process: ``"pool"`` with a pool of the driver, ``"fd"`` or ``"fabric"`` as
        physical memory, ``"legacy"`` by a cuIpc handle; None for the process's own."""
        return _PATHS[self._open().ipc_path]

    @property
    def memory_resource(self) -> Optional[MemoryResource]:
        """The resource that the memory goes back to; None if there is none, or the buffer is closed."""
        info = self._look()
        if info.is_closed:
            return None
        if self._resource is None and info.has_resource:
            self._resource = LibraryMemoryResource._wrap(_core.buffer_get_resource(self._handle))
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
        """Queues a copy of this buffer on `stream` and answers the destination.

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
            return Buffer._of(_core.buffer_clone(self._handle, raw), self._resource, keep)
        _core.buffer_copy(_as_buffer(dst, "dst")._handle, self._handle, raw)
        return dst

    def copy_from(self, src: Buffer, *, stream: StreamLike) -> None:
        """Queues a copy of `src` into this buffer on `stream`.

        Parameters
        ----------
        src : Buffer
            A buffer of the same size. It stays open until the copy is done.
        stream : stream
            The copy is done in its order. The caller orders it after the work that wrote `src`.

        Raises
        ------
        ValueError
            If the sizes differ.
        RuntimeError
            If a buffer is closed.
        """
        _core.buffer_copy(self._handle, _as_buffer(src, "src")._handle, resolve(stream)[0])

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
        _core.buffer_fill(self._handle, value, width, resolve(stream)[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # A pool of another process is named by its resource; every other kind of memory by the descriptor alone.
        resource = self.memory_resource
        carried = resource if resource is not None and resource._goes_with_buffers else None
        return _rebuild, (carried, self.get_ipc_descriptor())

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


def _rebuild(resource: Optional[MemoryResource], descriptor: _ipc.IPCBufferDescriptor) -> Buffer:
    """Imports a buffer on the default stream: the sender's stream means nothing here."""
    return Buffer.from_ipc_descriptor(resource, descriptor)


_core.connect(Buffer, Stream, resolve, as_size, as_pointer, failure)
