"""Memory that the library maps itself, and that grows where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from .. import _core
from .._arguments import as_bool, as_device, as_devices, as_number, as_options, as_pointer, as_size
from ..typing import (
    DeviceLike,
    SizeLike,
    VirtualMemoryAccessType,
    VirtualMemoryAllocationType,
    VirtualMemoryGranularityType,
    VirtualMemoryHandleType,
    VirtualMemoryLocationType,
)
from ._buffer import Buffer
from ._library_memory_resource import LibraryMemoryResource


@dataclass
class VirtualMemoryResourceOptions:
    """How a `VirtualMemoryResource` makes and maps memory. Every enumeration may be given as its string.

    Attributes
    ----------
    allocation_type : VirtualMemoryAllocationType or str
        What physical memory is made.
    location_type : VirtualMemoryLocationType or str
        Where it lies.
    handle_type : VirtualMemoryHandleType, str or None
        How it leaves the process; None: not at all, which ``"host"`` memory requires.
    granularity : VirtualMemoryGranularityType or str
        To which granularity of the driver's sizes are rounded up.
    gpu_direct_rdma : bool
        Whether network cards shall reach the memory, where the device supports that.
    addr_hint : int or None
        The address to try first; 0 or None: the driver's choice.
    addr_align : int, str or None
        The alignment of the address in bytes; None: the granularity.
    peers : iterable of devices
        Devices that may use the memory besides the resource's own.
    self_access, peer_access : VirtualMemoryAccessType, str or None
        What the device, and its peers, may do with the memory.

    Notes
    -----
    The fields are those of `cuda.core.VirtualMemoryResourceOptions
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.VirtualMemoryResourceOptions.html>`_.
    """

    allocation_type: Union[VirtualMemoryAllocationType, str] = VirtualMemoryAllocationType.PINNED
    location_type: Union[VirtualMemoryLocationType, str] = VirtualMemoryLocationType.DEVICE
    handle_type: Union[VirtualMemoryHandleType, str, None] = VirtualMemoryHandleType.POSIX_FD
    granularity: Union[VirtualMemoryGranularityType, str] = VirtualMemoryGranularityType.RECOMMENDED
    gpu_direct_rdma: bool = False
    addr_hint: Optional[int] = 0
    addr_align: Optional[SizeLike] = None
    peers: Iterable[DeviceLike] = field(default_factory=tuple)
    self_access: Union[VirtualMemoryAccessType, str, None] = VirtualMemoryAccessType.READ_WRITE
    peer_access: Union[VirtualMemoryAccessType, str, None] = VirtualMemoryAccessType.READ_WRITE

    def __setattr__(self, name: str, value: Any) -> None:
        # An iterator is empty the second time that it is gone through, and the options may be used more than once.
        object.__setattr__(self, name, tuple(value) if isinstance(value, Iterator) else value)


class VirtualMemoryResource(LibraryMemoryResource, kind=_core.RESOURCE_KIND_VIRTUAL):
    """Memory made and mapped with the driver's virtual memory management: rounded to whole pages, and able to grow in
    place.

    Parameters
    ----------
    device_id : int or object with ``device_id``
        The device, counted from 0. Memory of the host reports -1.
    config : VirtualMemoryResourceOptions or dict, optional
        None: the defaults.

    Raises
    ------
    ValueError
        If an option is unknown or out of range.
    NotImplementedError
        If the device, or this platform, lacks what an option asks for.

    Notes
    -----
    Has the members of `cuda.core.VirtualMemoryResource
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.VirtualMemoryResource.html>`_. Any thread
    may use it. Allocation and close are slow and not asynchronous: closing waits for the work queued on the buffer's
    stream.
    """

    __slots__ = ("_device", "config")
    _goes_with_buffers = True

    #: What the resource was made with; None for one that was made elsewhere.
    config: Optional[VirtualMemoryResourceOptions]

    def __init__(self, device_id: DeviceLike, config: Union[VirtualMemoryResourceOptions, dict[str, Any], None] = None) -> None:
        given = VirtualMemoryResourceOptions() if config is None else as_options(VirtualMemoryResourceOptions, config)
        device = as_device(device_id)
        self._handle = _core.virtual_resource_create(device, _translate(given))
        self._device, self.config = device, given

    def _wrapped(self, info: _core.ResourceInfo) -> None:
        self._device, self.config = info.device_id, None

    def modify_allocation(
        self,
        buf: Buffer,
        new_size: SizeLike,
        config: Union[VirtualMemoryResourceOptions, dict[str, Any], None] = None,
    ) -> Buffer:
        """Changes the size of a buffer of this resource, all or nothing, and answers that same buffer.

        Parameters
        ----------
        buf : Buffer
            A buffer of this resource. What it holds is kept as far as the new size reaches; its address is too, where
            what lies behind it is free. Its ``size`` and ``handle`` tell what became of it, and descriptors of it end.
        new_size : int or str
            The new size in bytes, rounded up to the granularity.
        config : VirtualMemoryResourceOptions or dict, optional
            How additional memory is made; None: as the resource's.

        Raises
        ------
        MemoryError
            If there is no memory for it.
        ValueError
            If the buffer is another resource's.
        RuntimeError
            If the buffer is closed, or a DLPack tensor or view of it is alive.

        Notes
        -----
        Where the buffer moves, work that is queued on its stream (that of its allocation) may still use the old
        address, and work queued later must use the new one: the call waits for that stream, and shrinking does too.
        Newer cuda.core only grows, and answers a second buffer instead.
        """
        size = as_size(new_size, "new_size")
        raw = None if config is None else _translate(as_options(VirtualMemoryResourceOptions, config))
        if not isinstance(buf, Buffer):
            raise TypeError(f"buf is a {type(buf).__name__}: it must be a Buffer")
        try:
            stream = buf._look().stream
            _core.resource_modify_allocation(self._own, buf._handle, size, raw, stream)
        finally:
            buf._remember(None)
        return buf

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._device, self.config)


def _translate(options: VirtualMemoryResourceOptions) -> dict[str, Any]:
    """The options as the library's numbers, by their names in ``forebay_virtual_resource_options``."""
    access = ("ACCESS", VirtualMemoryAccessType)
    return {
        "allocation_type": as_number(
            "ALLOCATION_TYPE", VirtualMemoryAllocationType, options.allocation_type, "allocation_type"
        ),
        "location_type": as_number("LOCATION", VirtualMemoryLocationType, options.location_type, "location_type"),
        "handle_type": as_number("HANDLE_TYPE", VirtualMemoryHandleType, options.handle_type, "handle_type", optional=True),
        "granularity": as_number("GRANULARITY", VirtualMemoryGranularityType, options.granularity, "granularity"),
        "gpu_direct_rdma": as_bool(options.gpu_direct_rdma, "gpu_direct_rdma"),
        "self_access": as_number(*access, options.self_access, "self_access", optional=True),
        "peer_access": as_number(*access, options.peer_access, "peer_access", optional=True),
        "addr_hint": as_pointer(options.addr_hint, "addr_hint"),
        "addr_align": 0 if options.addr_align is None else as_size(options.addr_align, "addr_align"),
        "peers": as_devices(options.peers, "peers"),
    }
