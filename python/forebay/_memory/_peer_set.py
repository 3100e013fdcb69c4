"""The devices that may use a resource's memory, as a set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any

from .._arguments import as_device
from .._pool import Pool
from ..typing import DeviceLike, VirtualMemoryAccessType
from ._library_memory_resource import LibraryMemoryResource


class PeerSet(MutableSet[int]):
    """The ordinals of the other devices that may read and write the memory of a resource; live, and changed in place.

    Adding or discarding a device takes effect at once, also for memory that is in use.

    Raises
    ------
    NotImplementedError
        On adding, if the devices cannot reach each other.

    Notes
    -----
    ``peer_accessible_by`` of cuda.core's DeviceMemoryResource.
    """

    __slots__ = ("_resource",)

    def __init__(self, resource: LibraryMemoryResource) -> None:
        self._resource = resource

    def _others(self) -> range:
        return range(Pool.shared().device_count)

    def __contains__(self, device: object) -> bool:
        try:
            number = as_device(device)
        except (TypeError, ValueError):
            return False
        if number == self._resource.device_id or number not in self._others():
            return False
        return self._resource.peer_access(number) == VirtualMemoryAccessType.READ_WRITE

    def __iter__(self) -> Iterator[int]:
        return (device for device in self._others() if device in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, device: DeviceLike) -> None:
        """Lets a device use the memory."""
        self._resource.set_peer_access(device, VirtualMemoryAccessType.READ_WRITE)

    def discard(self, device: DeviceLike) -> None:
        """Ends that; nothing it has queued may still use the memory."""
        if device in self:
            self._resource.set_peer_access(device, None)

    def replace(self, devices: Iterable[DeviceLike]) -> None:
        """Exactly these devices from now on; the resource's own is passed over."""
        wanted = {as_device(device) for device in devices} - {self._resource.device_id}
        for device in wanted - set(self):
            self.add(device)
        for device in set(self) - wanted:
            self.discard(device)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return set(it)

    def __repr__(self) -> str:
        return repr(set(self))


class WithPeers(LibraryMemoryResource):
    """A resource whose peers can be changed."""

    __slots__ = ()

    @property
    def peer_accessible_by(self) -> PeerSet:
        """The other devices that may use its memory; assign an iterable of devices to say which."""
        return PeerSet(self)

    @peer_accessible_by.setter
    def peer_accessible_by(self, devices: Iterable[DeviceLike]) -> None:
        PeerSet(self).replace(devices)
