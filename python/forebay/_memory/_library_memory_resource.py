"""What the library's own resources have in common: each method is one call."""

from __future__ import annotations

import uuid as _uuid
from typing import Any, ClassVar, Optional, TypeVar, Union

from .. import _core
from .._arguments import as_device, as_number, as_pointer, as_size
from .._stream import resolve
from ..typing import DeviceLike, DevicePointerType, SizeLike, StreamLike, VirtualMemoryAccessType
from ._memory_resource import MemoryResource

R = TypeVar("R", bound="LibraryMemoryResource")

_ACCESS = {
    _core.ACCESS_NONE: None,
    _core.ACCESS_READ: VirtualMemoryAccessType.READ,
    _core.ACCESS_READ_WRITE: VirtualMemoryAccessType.READ_WRITE,
}


class LibraryMemoryResource(_core.ResourceBase, MemoryResource):
    """A resource of the library. Not made directly: see the classes derived from it.

    The memory stays valid until each buffer is closed, whatever happens to the resource. Any thread may use it.
    """

    __slots__ = ("__weakref__",)

    #: The class for each ``FOREBAY_RESOURCE_KIND_*``, for those that the library hands out.
    _classes: ClassVar[dict[int, type[LibraryMemoryResource]]] = {}

    def __init_subclass__(cls, *, kind: Optional[int] = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if kind is not None:
            cls._classes[kind] = cls

    def __new__(cls: type[R], *_: object, **__: object) -> R:
        return super().__new__(cls)

    @classmethod
    def _wrap(cls, handle: int) -> LibraryMemoryResource:
        """Takes over a resource that the library handed out, as this class, if that is of its kind, or as its
        kind's."""
        info = _core.resource_get_info(handle)
        kind = cls._classes[info.kind]
        if issubclass(cls, kind):
            kind = cls
        self: LibraryMemoryResource = kind.__new__(kind)
        self._handle = handle
        self._wrapped(info)
        return self

    @property
    def _own(self) -> int:
        """The library's object; NULL before the constructor made one."""
        return self._handle or 0

    def _info(self) -> _core.ResourceInfo:
        return _core.resource_get_info(self._own)

    def _wrapped(self, info: _core.ResourceInfo) -> None:
        """For attributes of a class that its constructor would have set."""

    def __reduce__(self) -> tuple[object, ...]:
        # The kinds that can be sent say how. Of any other, a copy would own the same object of the library.
        raise TypeError(f"cannot pickle a {type(self).__name__}: its memory is of this process alone")

    def deallocate(self, ptr: DevicePointerType, size: SizeLike, stream: StreamLike = None) -> None:
        """Takes back memory that `forebay_resource_allocate_pointer` of the C ABI gave, and that no Buffer has.

        Parameters
        ----------
        ptr : int or handle
            Its address.
        size : int or str
            Its size in bytes.
        stream : stream, optional
            In whose order; None: that of the allocation.

        Raises
        ------
        ValueError
            If this resource gave no such memory, or a Buffer has it: that is closed instead.
        """
        address, size = as_pointer(ptr), as_size(size)
        if stream is None:
            _core.resource_deallocate_pointer(self._own, address)
        else:
            _core.resource_deallocate(self._own, address, size, resolve(stream)[0])

    def close(self) -> None:
        """Ends the resource and its own pool. Open buffers stay valid. Twice is harmless; no effect on a pool not its
        own."""
        _core.resource_close(self._own)

    def trim(self, keep: SizeLike = 0) -> None:
        """Gives idle memory back to the system.

        Parameters
        ----------
        keep : int or str
            The most bytes that stay held.
        """
        _core.resource_trim(self._own, as_size(keep, "keep"))

    def peer_access(self, peer: DeviceLike) -> Optional[VirtualMemoryAccessType]:
        """What the device `peer` may do with memory of this resource; None: nothing."""
        return _ACCESS[_core.resource_get_peer_access(self._own, as_device(peer, "peer"))]

    def set_peer_access(self, peer: DeviceLike, access: Union[VirtualMemoryAccessType, str, None]) -> None:
        """Lets the device `peer` use memory of this resource: ``"rw"``, ``"r"``, or None for no more."""
        number = as_number("ACCESS", VirtualMemoryAccessType, access, "access", optional=True)
        _core.resource_set_peer_access(self._own, as_device(peer, "peer"), number)

    @property
    def device_id(self) -> int:
        """The device of the memory; -1 for memory that belongs to none."""
        return self._info().device_id

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._info().is_closed

    @property
    def is_handle_owned(self) -> bool:
        """Whether the resource owns the pool behind it. If not, :meth:`close` has no effect."""
        return self._info().is_handle_owned

    @property
    def is_device_accessible(self) -> bool:
        """Whether a device may use the memory."""
        return self._info().is_device_accessible

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host may use the memory."""
        return self._info().is_host_accessible

    @property
    def is_managed(self) -> bool:
        """Whether the memory is CUDA managed memory."""
        return self._info().is_managed

    @property
    def is_ipc_enabled(self) -> bool:
        """Whether memory of this resource can be shared with other processes."""
        return self._info().is_ipc_enabled

    @property
    def is_mapped(self) -> bool:
        """Whether this is another process's resource, mapped here: it then gives no memory of its own."""
        return self._info().is_mapped

    @property
    def uuid(self) -> Optional[_uuid.UUID]:
        """The key under which processes know the resource; None unless it can be shared."""
        uuid = self._info().uuid
        return _uuid.UUID(bytes=bytes(uuid)) if uuid is not None else None

    def __repr__(self) -> str:
        info = self._info()
        words = [f"device_id={info.device_id}"]
        words += [name for name in ("is_ipc_enabled", "is_mapped", "is_closed") if getattr(info, name)]
        return f"<forebay.{type(self).__name__} {' '.join(words)}>"
