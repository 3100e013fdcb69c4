"""Memory that the library maps itself, and that grows where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ctypes import c_int32, c_void_p
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from .. import _library
from .. import _structs as s
from .._arguments import as_bool, as_device, as_devices, as_options, as_pointer, as_size
from .._buffer import Buffer
from .._errors import check
from ..typing import (
    DeviceLike,
    VirtualMemoryAccessType,
    VirtualMemoryAllocationType,
    VirtualMemoryGranularityType,
    VirtualMemoryHandleType,
    VirtualMemoryLocationType,
)
from ._library_resource import LibraryResource
from ._words import ACCESS, ALLOCATION, GRANULARITY, HANDLE, LOCATION, number_of


@dataclass
class VirtualMemoryResourceOptions:
    """How a `VirtualMemoryResource` makes and maps memory (document 004). Every enumeration may be given as its string.

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
    addr_align : int or None
        The alignment of the address in bytes; None: the granularity.
    peers : iterable of int
        Devices that may use the memory besides the resource's own.
    self_access, peer_access : VirtualMemoryAccessType, str or None
        What the device, and its peers, may do with the memory.
    """

    allocation_type: Union[VirtualMemoryAllocationType, str] = VirtualMemoryAllocationType.PINNED
    location_type: Union[VirtualMemoryLocationType, str] = VirtualMemoryLocationType.DEVICE
    handle_type: Union[VirtualMemoryHandleType, str, None] = VirtualMemoryHandleType.POSIX_FD
    granularity: Union[VirtualMemoryGranularityType, str] = VirtualMemoryGranularityType.RECOMMENDED
    gpu_direct_rdma: bool = False
    addr_hint: Optional[int] = 0
    addr_align: Optional[int] = None
    peers: Iterable[int] = field(default_factory=tuple)
    self_access: Union[VirtualMemoryAccessType, str, None] = VirtualMemoryAccessType.READ_WRITE
    peer_access: Union[VirtualMemoryAccessType, str, None] = VirtualMemoryAccessType.READ_WRITE

    def __setattr__(self, name: str, value: Any) -> None:
        # An iterator is empty the second time that it is gone through, and the options may be used more than once.
        object.__setattr__(self, name, tuple(value) if isinstance(value, Iterator) else value)


class VirtualMemoryResource(LibraryResource, kind=s.ResourceKind.VIRTUAL):
    """Memory made and mapped with the driver's virtual memory management: rounded to whole pages, and able to grow in place.

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
    Allocation and close are slow and not asynchronous: closing waits for the work queued on the buffer's stream.
    """

    __slots__ = ("_device", "config")

    #: What the resource was made with; None for one that was made elsewhere.
    config: Optional[VirtualMemoryResourceOptions]

    def __init__(self, device_id: DeviceLike, config: Union[VirtualMemoryResourceOptions, dict[str, Any], None] = None) -> None:
        given = VirtualMemoryResourceOptions() if config is None else as_options(VirtualMemoryResourceOptions, config)
        device, out = as_device(device_id), c_void_p()
        raw = _translate(given)
        check(_library.forebay_virtual_resource_create(device, raw, out))
        self._handle, self._device, self.config = out.value, device, given

    def _wrapped(self, info: s.ResourceInfo) -> None:
        self._device, self.config = info.device_id, None

    def modify_allocation(
        self,
        buf: Buffer,
        new_size: int,
        config: Union[VirtualMemoryResourceOptions, dict[str, Any], None] = None,
    ) -> Buffer:
        """Changes the size of a buffer of this resource, all or nothing, and answers that same buffer.

        Parameters
        ----------
        buf : Buffer
            A buffer of this resource. What it holds is kept as far as the new size reaches; its address is too, where what lies
            behind it is free. Its ``size`` and ``handle`` tell what became of it, and descriptors of it end.
        new_size : int
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
        Where the buffer moves, work that is queued on its stream (that of its allocation) may still use the old address, and
        work queued later must use the new one: the call waits for that stream, and shrinking does too. Newer cuda.core only grows, and answers a second
        buffer instead.
        """
        size = as_size(new_size, "new_size")
        raw = None if config is None else _translate(as_options(VirtualMemoryResourceOptions, config))
        if not isinstance(buf, Buffer):
            raise TypeError(f"buf is a {type(buf).__name__}: it must be a Buffer")
        try:
            stream = buf._look().stream
            check(_library.forebay_resource_modify_allocation(self._handle, buf._handle, size, raw, stream))
        finally:
            buf._remember(None)
        return buf

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._device, self.config)


def _translate(options: VirtualMemoryResourceOptions) -> s.VirtualOptions:
    raw = s.VirtualOptions()
    check(_library.forebay_virtual_resource_options_init(raw))
    raw.allocation_type = number_of(ALLOCATION, options.allocation_type, "allocation_type")
    raw.location_type = number_of(LOCATION, options.location_type, "location_type")
    raw.handle_type = number_of(HANDLE, options.handle_type, "handle_type")
    raw.granularity = number_of(GRANULARITY, options.granularity, "granularity")
    raw.gpu_direct_rdma = as_bool(options.gpu_direct_rdma, "gpu_direct_rdma")
    raw.self_access = number_of(ACCESS, options.self_access, "self_access")
    raw.peer_access = number_of(ACCESS, options.peer_access, "peer_access")
    raw.addr_hint = as_pointer(options.addr_hint, "addr_hint")
    raw.addr_align = 0 if options.addr_align is None else as_size(options.addr_align, "addr_align")
    peers = as_devices(options.peers, "peers")
    # The struct keeps the array: ctypes holds what a pointer field was set to.
    raw.peer_count, raw.peers = len(peers), (c_int32 * len(peers))(*peers)
    return raw
