"""Memory of a device from a stream-ordered pool of the driver."""

from __future__ import annotations

import uuid as _uuid
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any, Optional, Union

from .. import _library
from .. import _structs as s
from .._arguments import as_bool, as_device, as_options, as_pointer, as_size
from .._errors import check
from .._ipc import IPCAllocationHandle
from ..typing import DeviceLike
from ._peers import WithPeers
from ._pooled import SharedPoolResource


@dataclass
class DeviceMemoryResourceOptions:
    """How a `DeviceMemoryResource` makes its pool.

    Attributes
    ----------
    ipc_enabled : bool
        Whether the pool can be shared with other processes.
    max_size : int
        The most bytes the pool may hold; 0: as the system allows.
    """

    ipc_enabled: bool = False
    max_size: int = 0


class DeviceMemoryResource(SharedPoolResource, WithPeers, kind=s.ResourceKind.DEVICE):
    """Memory of a device, given and taken back in the order of streams, from a pool of the driver.

    Parameters
    ----------
    device_id : int or object with ``device_id``
        The device, counted from 0.
    options : DeviceMemoryResourceOptions or dict, optional
        Makes a new pool, which the resource owns. None: the device's current pool, which it does not own.

    Raises
    ------
    ValueError
        If there is no such device, or an option is out of range.
    NotImplementedError
        If the device has no such pools.

    Notes
    -----
    Has the members of cuda.core's class of this name, which documents 000 and 001 refer to. To share: get_allocation_handle,
    from_allocation_handle, and a descriptor for each buffer; or send the resource and its buffers through `multiprocessing`.
    """

    __slots__ = ()
    _kind = s.ResourceKind.DEVICE

    def __init__(self, device_id: DeviceLike, options: Union[DeviceMemoryResourceOptions, dict[str, Any], None] = None) -> None:
        if options is None:
            self._create(as_device(device_id), None)
            return
        given = as_options(DeviceMemoryResourceOptions, options)
        raw = _defaults()
        raw.ipc_enabled = as_bool(given.ipc_enabled, "ipc_enabled")
        raw.max_size = as_size(given.max_size, "max_size")
        self._create(as_device(device_id), raw)

    def _create(self, device_id: int, raw: Optional[s.DeviceOptions]) -> None:
        out = c_void_p()
        check(_library.forebay_device_resource_create(device_id, raw, out))
        self._handle = out.value

    @classmethod
    def from_pool(cls, device_id: DeviceLike, pool: Union[str, int] = "current") -> DeviceMemoryResource:
        """A resource on a pool that exists: ``"current"``, ``"default"``, or a CUmemoryPool as an integer (document 003).

        The resource does not own it.
        """
        raw = _defaults()
        if pool == "current":
            raw.source = s.PoolSource.CURRENT
        elif pool == "default":
            raw.source = s.PoolSource.DEFAULT
        elif isinstance(pool, str):
            raise ValueError(f"pool is {pool!r}: it must be 'current', 'default' or a CUmemoryPool as an integer")
        else:
            raw.source, raw.handle = s.PoolSource.HANDLE, as_pointer(pool, "pool")
        self: DeviceMemoryResource = cls.__new__(cls)
        self._create(as_device(device_id), raw)
        return self

    @classmethod
    def from_allocation_handle(
        cls, device_id: DeviceLike, alloc_handle: Union[int, IPCAllocationHandle]
    ) -> DeviceMemoryResource:
        """Maps a pool that another process shares.

        Parameters
        ----------
        device_id : int or object with ``device_id``
            The device of the memory, as this process counts.
        alloc_handle : int or IPCAllocationHandle
            The pool's file descriptor, which stays the caller's. A handle brings its key: a resource that is registered
            under it is answered, else the new one is registered.
        """
        return cls._import(as_device(device_id), alloc_handle)  # type: ignore[no-any-return]

    @staticmethod
    def from_registry(uuid: _uuid.UUID) -> DeviceMemoryResource:
        """The mapped resource registered under a key.

        Raises
        ------
        RuntimeError
            If there is none.
        """
        return DeviceMemoryResource._registered(uuid)  # type: ignore[no-any-return]


def _defaults() -> s.DeviceOptions:
    raw = s.DeviceOptions()
    check(_library.forebay_device_resource_options_init(raw))
    return raw
