"""How resources and handles go through `multiprocessing`.

Plain pickle carries a shared pool's key and a buffer's descriptor: the receiver must have mapped the pool.
`multiprocessing` carries the pool's file descriptor too, so there a resource or a buffer may be sent as it is.
Unpickling a buffer imports memory: do that only with data from somebody you trust.
"""

from __future__ import annotations

import multiprocessing.reduction
from typing import Any

from ._memory._device_memory_resource import DeviceMemoryResource
from ._memory._ipc import IPCAllocationHandle
from ._memory._pinned_memory_resource import PinnedMemoryResource


def _reduce_handle(handle: IPCAllocationHandle) -> tuple[Any, ...]:
    duplicate = multiprocessing.reduction.DupFd(int(handle))
    return _rebuild_handle, (duplicate, handle.uuid)


def _rebuild_handle(duplicate: Any, uuid: Any) -> IPCAllocationHandle:
    return IPCAllocationHandle._init(duplicate.detach(), uuid)


def _reduce_device(resource: DeviceMemoryResource) -> tuple[Any, ...]:
    if resource.is_mapped:
        return resource.__reduce__()
    return DeviceMemoryResource.from_allocation_handle, (resource.device_id, resource.get_allocation_handle())


def _reduce_pinned(resource: PinnedMemoryResource) -> tuple[Any, ...]:
    if resource.is_mapped:
        return resource.__reduce__()
    return PinnedMemoryResource.from_allocation_handle, (resource.get_allocation_handle(),)


multiprocessing.reduction.register(IPCAllocationHandle, _reduce_handle)
multiprocessing.reduction.register(DeviceMemoryResource, _reduce_device)
multiprocessing.reduction.register(PinnedMemoryResource, _reduce_pinned)
