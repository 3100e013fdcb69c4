"""What the library's own resources have in common: each method is one call."""

from __future__ import annotations

import uuid as _uuid
from ctypes import byref, c_uint32
from typing import Any, ClassVar, Optional

from .. import _library
from .. import _structs as s
from .._arguments import as_device, as_pointer, as_size
from .._errors import check
from .._hot import ResourceBase
from .._stream import resolve
from ..typing import DevicePointerType, StreamLike, VirtualMemoryAccessType
from ._base import MemoryResource
from ._words import ACCESS, access_of, number_of


class LibraryResource(ResourceBase, MemoryResource):
    """A resource of the library. Not made directly: see the classes derived from it.

    The memory stays valid until each buffer is closed, whatever happens to the resource. Any thread may use it.
    """

    __slots__ = ("__weakref__",)

    #: The class for each kind of resource, for those that the library hands out.
    _classes: ClassVar[dict[int, type[LibraryResource]]] = {}

    def __init_subclass__(cls, *, kind: Optional[s.ResourceKind] = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if kind is not None:
            cls._classes[kind] = cls

    def __new__(cls, *_: object, **__: object) -> Any:
        return super().__new__(cls)

    @classmethod
    def _wrap(cls, handle: Optional[int]) -> LibraryResource:
        """Takes over a resource that the library handed out, as this class, if that is of its kind, or as its kind's."""
        info = _info(handle)
        kind = cls._classes[info.kind]
        if issubclass(cls, kind):
            kind = cls
        self: LibraryResource = kind.__new__(kind)
        self._handle = handle
        self._wrapped(info)
        return self

    def _wrapped(self, info: s.ResourceInfo) -> None:
        """For attributes of a class that its constructor would have set."""

    def __reduce__(self) -> tuple[object, ...]:
        # The kinds that can be sent say how. Of any other, a copy would own the same object of the library.
        raise TypeError(f"cannot pickle a {type(self).__name__}: its memory is of this process alone")

    def deallocate(self, ptr: DevicePointerType, size: int, stream: StreamLike = None) -> None:
        """Takes back memory that `forebay_resource_allocate_pointer` of the C ABI gave, and that no Buffer has.

        Parameters
        ----------
        ptr : int or handle
            Its address.
        size : int
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
            check(_library.forebay_resource_deallocate_pointer(self._handle, address))
        else:
            check(_library.forebay_resource_deallocate(self._handle, address, size, resolve(stream)[0]))

    def close(self) -> None:
        """Ends the resource and its own pool. Open buffers stay valid. Twice is harmless; no effect on a pool not its own."""
        check(_library.forebay_resource_close(self._handle))

    def trim(self, keep: int = 0) -> None:
        """Gives idle memory back to the system until at most `keep` bytes are held."""
        check(_library.forebay_resource_trim(self._handle, as_size(keep, "keep")))

    def peer_access(self, peer: Any) -> Optional[VirtualMemoryAccessType]:
        """What the device `peer` may do with memory of this resource; None: nothing."""
        out = c_uint32()
        check(_library.forebay_resource_get_peer_access(self._handle, as_device(peer, "peer"), byref(out)))
        return access_of(out.value)

    def set_peer_access(self, peer: Any, access: Any) -> None:
        """Lets the device `peer` use memory of this resource: ``"rw"``, ``"r"``, or None for no more."""
        number = number_of(ACCESS, access, "access")
        check(_library.forebay_resource_set_peer_access(self._handle, as_device(peer, "peer"), number))

    @property
    def device_id(self) -> int:
        """The device of the memory; -1 for memory that belongs to none."""
        return int(_info(self._handle).device_id)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return bool(_info(self._handle).is_closed)

    @property
    def is_handle_owned(self) -> bool:
        """Whether the resource owns the pool behind it. If not, :meth:`close` has no effect."""
        return bool(_info(self._handle).is_handle_owned)

    @property
    def is_device_accessible(self) -> bool:
        """Whether a device may use the memory."""
        return bool(_info(self._handle).is_device_accessible)

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host may use the memory."""
        return bool(_info(self._handle).is_host_accessible)

    @property
    def is_managed(self) -> bool:
        """Whether the memory is CUDA managed memory."""
        return bool(_info(self._handle).is_managed)

    @property
    def is_ipc_enabled(self) -> bool:
        """Whether memory of this resource can be shared with other processes."""
        return bool(_info(self._handle).is_ipc_enabled)

    @property
    def is_mapped(self) -> bool:
        """Whether this is another process's resource, mapped here: it then gives no memory of its own."""
        return bool(_info(self._handle).is_mapped)

    @property
    def uuid(self) -> Optional[_uuid.UUID]:
        """The key under which processes know the resource; None unless it can be shared."""
        info = _info(self._handle)
        return _uuid.UUID(bytes=bytes(info.uuid)) if info.has_uuid else None

    def __repr__(self) -> str:
        info = _info(self._handle)
        words = [f"device_id={info.device_id}"]
        words += [name for name in ("is_ipc_enabled", "is_mapped", "is_closed") if getattr(info, name)]
        return f"<forebay.{type(self).__name__} {' '.join(words)}>"


def _info(handle: Optional[int]) -> s.ResourceInfo:
    info = s.ResourceInfo(size=s.RESOURCE_INFO_SIZE, version=s.VERSION)
    check(_library.forebay_resource_get_info(handle, info))
    return info
