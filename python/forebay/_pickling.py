"""How buffers and resources go through pickle and multiprocessing.

Plain pickle carries a shared pool's key and a buffer's descriptor: the receiver must have mapped the pool. multiprocessing
carries the pool's file descriptor too, so there a resource or a buffer may be sent as it is. Unpickling a buffer imports
memory: do that only with data from somebody you trust.
"""

from __future__ import annotations

import multiprocessing.reduction
from typing import Any, Optional

from ._buffer import Buffer
from ._ipc import IPCAllocationHandle, IPCBufferDescriptor
from ._resources._base import MemoryResource
from ._resources._device import DeviceMemoryResource
from ._resources._pinned import PinnedMemoryResource
from ._resources._pooled import SharedPoolResource
from ._resources._virtual import VirtualMemoryResource


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


def reduce_buffer(buffer: Buffer) -> tuple[Any, ...]:
    """What pickle carries of a buffer."""
    # A pool of another process is named by its resource; every other kind of memory by the descriptor alone.
    resource = buffer.memory_resource
    carried = resource if isinstance(resource, (SharedPoolResource, VirtualMemoryResource)) else None
    return rebuild_buffer, (carried, buffer.get_ipc_descriptor())


def rebuild_buffer(resource: Optional[MemoryResource], descriptor: IPCBufferDescriptor) -> Buffer:
    """Imports a buffer on the default stream: the sender's stream means nothing here."""
    return Buffer.from_ipc_descriptor(resource, descriptor)


multiprocessing.reduction.register(IPCAllocationHandle, _reduce_handle)
multiprocessing.reduction.register(DeviceMemoryResource, _reduce_device)
multiprocessing.reduction.register(PinnedMemoryResource, _reduce_pinned)
