"""Resources on a stream-ordered pool of the driver, and those of them that processes share."""

from __future__ import annotations

import os
import uuid as _uuid
import weakref
from ctypes import byref, c_int32, c_uint8, c_void_p
from typing import Any, ClassVar, Optional, TypeVar

from .. import _library
from .. import _structs as s
from .._arguments import as_fd
from .._errors import NotFoundError, Status, check
from .._ipc import IPCAllocationHandle
from ._attributes import _MemPoolAttributes
from ._library_resource import LibraryResource, _info

# The wrapper of each resource that has a key here, so that asking twice gives the same object. The library's own registry
# says what is registered; this only remembers which Python object that is.
_wrappers: weakref.WeakValueDictionary[_uuid.UUID, SharedPoolResource] = weakref.WeakValueDictionary()

T = TypeVar("T", bound="SharedPoolResource")


class PooledResource(LibraryResource):
    """A resource on a stream-ordered pool of the driver, its own or one that others use too."""

    __slots__ = ()

    @property
    def attributes(self) -> _MemPoolAttributes:
        """The pool's attributes."""
        return _MemPoolAttributes._of(self)

    @property
    def handle(self) -> int:
        """The CUmemoryPool as an integer."""
        return int(_info(self._handle).handle)


class SharedPoolResource(PooledResource):
    """A pool that can be shared: by a file descriptor, with a key by which the other processes find it again."""

    __slots__ = ("_allocation_handle",)

    _allocation_handle: Optional[IPCAllocationHandle]
    _kind: ClassVar[s.ResourceKind]

    def __new__(cls, *_: object, **__: object) -> Any:
        self = super().__new__(cls)
        self._allocation_handle = None
        return self

    @classmethod
    def _import(cls, device_id: int, alloc_handle: Any) -> Any:
        uuid = getattr(alloc_handle, "uuid", None)
        fd = int(alloc_handle) if isinstance(alloc_handle, IPCAllocationHandle) else as_fd(alloc_handle)
        out = c_void_p()
        key = uuid.bytes if uuid is not None else None
        check(_library.forebay_resource_from_allocation_handle(cls._kind, device_id, fd, key, out))
        return cls._known(out.value, uuid)

    @classmethod
    def _known(cls, handle: Optional[int], uuid: Optional[_uuid.UUID]) -> Any:
        """Takes over a resource of the registry, as the object that stands for it already if there is one."""
        known: Any = _wrappers.get(uuid) if uuid is not None else None
        if known is None or known.is_closed:
            known = cls._wrap(handle)
            if uuid is not None:
                _wrappers[uuid] = known
        elif issubclass(cls, type(known)) and type(known) is not cls:
            # One more object of the same resource, of the derived class that was asked for.
            known = cls._wrap(handle)
        else:
            _library.forebay_resource_destroy(handle)
        if not isinstance(known, cls):
            raise NotFoundError(
                f"{uuid} is the key of a {type(known).__name__}, not of a {cls.__name__}: ask that class", Status.NOT_FOUND
            )
        return known

    @classmethod
    def _registered(cls, uuid: Any) -> Any:
        if not isinstance(uuid, _uuid.UUID):
            raise TypeError(f"uuid is a {type(uuid).__name__}: it must be a uuid.UUID")
        out = c_void_p()
        check(_library.forebay_resource_from_registry(uuid.bytes, out))
        return cls._known(out.value, uuid)

    def get_allocation_handle(self) -> IPCAllocationHandle:
        """The pool's handle, to be sent to other processes (document 000). Cached here and owned by this object.

        Raises
        ------
        RuntimeError
            If the pool is not made for sharing, or is itself another process's.
        """
        if self._allocation_handle is None or self._allocation_handle.is_closed:
            fd, uuid = c_int32(), (c_uint8 * 16)()
            check(_library.forebay_resource_get_allocation_handle(self._handle, byref(fd), byref(uuid)))
            # The library's descriptor stays the library's: whoever closes the handle closes this copy.
            self._allocation_handle = IPCAllocationHandle._init(os.dup(fd.value), _uuid.UUID(bytes=bytes(uuid)))
        return self._allocation_handle

    @property
    def allocation_handle(self) -> IPCAllocationHandle:
        """The same as :meth:`get_allocation_handle`, under newer cuda.core's name."""
        return self.get_allocation_handle()

    @property
    def uuid(self) -> Optional[_uuid.UUID]:
        """The key under which processes know the pool; None unless it can be shared."""
        # The library gives a pool its key when the pool is first exported.
        known = super().uuid
        return self.get_allocation_handle().uuid if known is None and self.is_ipc_enabled and not self.is_mapped else known

    def register(self: T, uuid: _uuid.UUID) -> T:
        """Registers a mapped resource under a key (document 000).

        Returns
        -------
        The resource registered under that key: this one, or the one that was registered before.

        Raises
        ------
        RuntimeError
            If this is no mapped resource.
        """
        if not isinstance(uuid, _uuid.UUID):
            raise TypeError(f"uuid is a {type(uuid).__name__}: it must be a uuid.UUID")
        out = c_void_p()
        check(_library.forebay_resource_register(self._handle, uuid.bytes, out))
        if uuid not in _wrappers and _info(out.value).handle == _info(self._handle).handle:
            _wrappers[uuid] = self
        # The one that was registered, of whichever class derived from this kind's.
        kind: Any = self._classes[self._kind]
        return kind._known(out.value, uuid)  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        # Plain pickle carries the key alone. multiprocessing carries the descriptor too: see `_pickling`.
        return type(self).from_registry, (self.uuid,)  # type: ignore[attr-defined]
