"""Resources on a stream-ordered pool of the driver, and those of them that processes share."""

from __future__ import annotations

import os
import uuid as _uuid
import weakref
from typing import Any, ClassVar, Optional, TypeVar

from .. import _core
from .._arguments import as_fd
from .._errors import NotFoundError, Status
from ._ipc import IPCAllocationHandle
from ._library_memory_resource import LibraryMemoryResource
from ._memory_pool_attributes import _MemPoolAttributes

# The wrapper of each resource that has a key here, so that asking twice gives the same object. The library's own
# registry says what is registered; this only remembers which Python object that is.
_wrappers: weakref.WeakValueDictionary[_uuid.UUID, SharedMemoryPool] = weakref.WeakValueDictionary()

T = TypeVar("T", bound="SharedMemoryPool")


class MemoryPool(LibraryMemoryResource):
    """A resource on a stream-ordered pool of the driver, its own or one that others use too."""

    __slots__ = ()

    @property
    def attributes(self) -> _MemPoolAttributes:
        """The pool's attributes."""
        return _MemPoolAttributes._of(self)

    @property
    def handle(self) -> int:
        """The CUmemoryPool as an integer."""
        return self._info().handle


class SharedMemoryPool(MemoryPool):
    """A pool that can be shared: by a file descriptor, with a key by which the other processes find it again."""

    __slots__ = ("_allocation_handle",)

    _allocation_handle: Optional[IPCAllocationHandle]
    _kind: ClassVar[int]
    _goes_with_buffers = True

    def __new__(cls: type[T], *_: object, **__: object) -> T:
        self = super().__new__(cls)
        self._allocation_handle = None
        return self

    @classmethod
    def _import(cls, device_id: int, alloc_handle: Any) -> Any:
        uuid = getattr(alloc_handle, "uuid", None)
        fd = int(alloc_handle) if isinstance(alloc_handle, IPCAllocationHandle) else as_fd(alloc_handle)
        key = uuid.bytes if uuid is not None else None
        return cls._known(_core.resource_from_allocation_handle(cls._kind, device_id, fd, key), uuid)

    @classmethod
    def _known(cls, handle: int, uuid: Optional[_uuid.UUID]) -> Any:
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
            cls._wrap(handle)  # ends the object
        if not isinstance(known, cls):
            raise NotFoundError(
                f"{uuid} is the key of a {type(known).__name__}, not of a {cls.__name__}: ask that class", Status.NOT_FOUND
            )
        return known

    @classmethod
    def _registered(cls, uuid: Any) -> Any:
        if not isinstance(uuid, _uuid.UUID):
            raise TypeError(f"uuid is a {type(uuid).__name__}: it must be a uuid.UUID")
        return cls._known(_core.resource_from_registry(uuid.bytes), uuid)

    def get_allocation_handle(self) -> IPCAllocationHandle:
        """The pool's handle, to be sent to other processes. Cached here and owned by this object.

        Raises
        ------
        RuntimeError
            If the pool is not made for sharing, or is itself another process's.
        """
        if self._allocation_handle is None or self._allocation_handle.is_closed:
            fd, uuid = _core.resource_get_allocation_handle(self._own)
            # The library's descriptor stays the library's: whoever closes the handle closes this copy.
            self._allocation_handle = IPCAllocationHandle._init(os.dup(fd), _uuid.UUID(bytes=bytes(uuid)))
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
        """Registers a mapped resource under a key.

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
        registered = _core.resource_register(self._own, uuid.bytes)
        if uuid not in _wrappers and _core.resource_get_info(registered).handle == self._info().handle:
            _wrappers[uuid] = self
        # The one that was registered, of whichever class derived from this kind's.
        kind: Any = self._classes[self._kind]
        return kind._known(registered, uuid)  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        # Plain pickle carries the key alone. multiprocessing carries the descriptor too: see `_multiprocessing`.
        return type(self).from_registry, (self.uuid,)  # type: ignore[attr-defined]
