"""What the library's own resources have in common: each method is one call."""

from __future__ import annotations

import uuid as _uuid
from ctypes import byref, c_uint32, c_void_p
from typing import Any, ClassVar, Optional

from .. import _library
from .. import _structs as s
from .._arguments import MAX_SIZE, as_device, as_pointer, as_size
from .._buffer import Buffer
from .._errors import check, failure
from .._stream import resolve
from ..typing import DevicePointerType, StreamLike, VirtualMemoryAccessType
from ._base import MemoryResource
from ._words import ACCESS, access_of, number_of

_allocate = _library.forebay_resource_allocate
_buffer = Buffer._of

# Output cells that no call is using, each with the reference to it that is passed. A call takes one and puts it back: list
# operations are atomic, so two threads never share one, and none has to be made for each allocation.
_cells: list[tuple[c_void_p, Any]] = []


def _new_cell() -> tuple[c_void_p, Any]:
    cell = c_void_p()
    return cell, byref(cell)


class LibraryResource(MemoryResource):
    """A resource of the library. Not made directly: see the classes derived from it.

    The memory stays valid until each buffer is closed, whatever happens to the resource. Any thread may use it.
    """

    __slots__ = ("_handle",)

    _handle: Optional[int]

    #: The class for each kind of resource, for those that the library hands out.
    _classes: ClassVar[dict[int, type[LibraryResource]]] = {}

    def __init_subclass__(cls, *, kind: Optional[s.ResourceKind] = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if kind is not None:
            cls._classes[kind] = cls

    def __new__(cls, *_: object, **__: object) -> Any:
        self = super().__new__(cls)
        self._handle = None  # for `__del__`, should the constructor raise
        return self

    @classmethod
    def _wrap(cls, handle: Optional[int]) -> LibraryResource:
        """Takes over a resource that the library handed out, as the class of its kind."""
        info = _info(handle)
        kind = cls._classes[info.kind]
        self: LibraryResource = kind.__new__(kind)
        self._handle = handle
        self._wrapped(info)
        return self

    def _wrapped(self, info: s.ResourceInfo) -> None:
        """For attributes of a class that its constructor would have set."""

    def __del__(self, _destroy: _library.Function = _library.forebay_resource_destroy) -> None:
        if self._handle is not None:
            _destroy(self._handle)

    def allocate(self, size: int, stream: StreamLike = None) -> Buffer:
        """Gives a buffer of `size` bytes, usable by work queued on `stream` from now on.

        Parameters
        ----------
        size : int
            Bytes. 0 gives a buffer without memory.
        stream : stream, optional
            In whose order the memory is given and, unless `Buffer.close` names another, taken back. None: the device's
            default stream.

        Raises
        ------
        MemoryError
            If there is no memory, after everything that could be given back was.
        TypeError
            If `size` is no integer, or `stream` no stream.
        ValueError
            If `size` is negative.
        RuntimeError
            If the resource is closed, mapped from another process, or the stream is being captured.
        """
        if type(size) is not int or not 0 <= size <= MAX_SIZE:
            size = as_size(size)
        raw, keep = (None, None) if stream is None else resolve(stream)
        try:
            pair = _cells.pop()
        except IndexError:
            pair = _new_cell()
        status = _allocate(self._handle, size, raw, pair[1])
        handle = pair[0].value
        _cells.append(pair)
        if status:
            raise failure(status)
        return _buffer(handle, self, keep)

    def deallocate(self, ptr: DevicePointerType, size: int, stream: StreamLike = None) -> None:
        """Takes back memory that is no Buffer's, as `forebay_resource_allocate_pointer` of the C ABI gives it.

        Parameters
        ----------
        ptr : int or handle
            Its address.
        size : int
            Its size in bytes.
        stream : stream, optional
            In whose order; None: the device's default stream.

        Raises
        ------
        ValueError
            If this resource gave no such memory.
        """
        check(_library.forebay_resource_deallocate(self._handle, as_pointer(ptr), as_size(size), resolve(stream)[0]))

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
