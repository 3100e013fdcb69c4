"""Memory of a device from a stream-ordered pool of the driver."""

from __future__ import annotations

import uuid as _uuid
from dataclasses import dataclass
from typing import Any, Union

from .. import _core
from .._arguments import as_bool, as_device, as_options, as_pointer, as_size
from ..typing import DeviceLike, SizeLike
from ._ipc import IPCAllocationHandle
from ._memory_pool import SharedMemoryPool
from ._peer_set import WithPeers


@dataclass
class DeviceMemoryResourceOptions:
    """How a `DeviceMemoryResource` makes its pool.

    Attributes
    ----------
    ipc_enabled : bool
        Whether the pool can be shared with other processes.
    max_size : int or str
        The most bytes the pool may hold; 0: as the system allows.

    Notes
    -----
    The fields are those of `cuda.core.DeviceMemoryResourceOptions
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.DeviceMemoryResourceOptions.html>`_.
    """

    ipc_enabled: bool = False
    max_size: SizeLike = 0


class DeviceMemoryResource(SharedMemoryPool, WithPeers, kind=_core.RESOURCE_KIND_DEVICE):
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
    Has the members of `cuda.core.DeviceMemoryResource
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.DeviceMemoryResource.html>`_. Any thread
    may use it. To share: `get_allocation_handle`, `from_allocation_handle`, and a descriptor for each buffer; or send
    the resource and its buffers through `multiprocessing`.
    """

    __slots__ = ()
    _kind = _core.RESOURCE_KIND_DEVICE

    def __init__(self, device_id: DeviceLike, options: Union[DeviceMemoryResourceOptions, dict[str, Any], None] = None) -> None:
        device = as_device(device_id)
        if options is None:
            self._handle = _core.device_resource_create(device, _core.POOL_SOURCE_CURRENT, 0, False, 0)
            return
        given = as_options(DeviceMemoryResourceOptions, options)
        ipc_enabled, max_size = as_bool(given.ipc_enabled, "ipc_enabled"), as_size(given.max_size, "max_size")
        self._handle = _core.device_resource_create(device, _core.POOL_SOURCE_NEW, 0, ipc_enabled, max_size)

    @classmethod
    def from_pool(cls, device_id: DeviceLike, pool: Union[str, int] = "current") -> DeviceMemoryResource:
        """A resource on a pool that exists: ``"current"``, ``"default"``, or a CUmemoryPool as an integer.

        The resource does not own it.
        """
        handle = 0
        if pool == "current":
            source = _core.POOL_SOURCE_CURRENT
        elif pool == "default":
            source = _core.POOL_SOURCE_DEFAULT
        elif isinstance(pool, str):
            raise ValueError(f"pool is {pool!r}: it must be 'current', 'default' or a CUmemoryPool as an integer")
        else:
            source, handle = _core.POOL_SOURCE_HANDLE, as_pointer(pool, "pool")
        self: DeviceMemoryResource = cls.__new__(cls)
        self._handle = _core.device_resource_create(as_device(device_id), source, handle, False, 0)
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
