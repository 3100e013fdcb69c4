"""Words and types of the interface: enumerations whose members are strings, and what counts as a stream.

Every option that takes an enumeration takes its string as well: ``"pinned"`` for
``VirtualMemoryAllocationType.PINNED``.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Optional, Protocol, SupportsInt, Union

__all__ = [
    "DeviceLike",
    "DevicePointerType",
    "ManagedMemoryLocationType",
    "StreamLike",
    "SizeLike",
    "SupportsCudaStream",
    "VirtualMemoryAccessType",
    "VirtualMemoryAllocationType",
    "VirtualMemoryGranularityType",
    "VirtualMemoryHandleType",
    "VirtualMemoryLocationType",
]


class _Word(str, Enum):
    """An enumeration of strings that prints as the string, as `enum.StrEnum` of Python 3.11 does."""

    __str__ = str.__str__


class VirtualMemoryAllocationType(_Word):
    """What physical memory is made."""

    PINNED = "pinned"
    MANAGED = "managed"


class VirtualMemoryLocationType(_Word):
    """Where physical memory lies."""

    DEVICE = "device"
    HOST = "host"
    HOST_NUMA = "host_numa"
    HOST_NUMA_CURRENT = "host_numa_current"


class VirtualMemoryHandleType(_Word):
    """How physical memory leaves the process; None where one of these is taken: not at all."""

    POSIX_FD = "posix_fd"
    GENERIC = "generic"
    WIN32 = "win32"
    WIN32_KMT = "win32_kmt"
    FABRIC = "fabric"


class VirtualMemoryGranularityType(_Word):
    """To which of the driver's two granularities sizes are rounded."""

    MINIMUM = "minimum"
    RECOMMENDED = "recommended"


class VirtualMemoryAccessType(_Word):
    """What a device may do with mapped memory; None where one of these is taken: nothing."""

    READ_WRITE = "rw"
    READ = "r"


class ManagedMemoryLocationType(_Word):
    """Where managed memory prefers to be."""

    DEVICE = "device"
    HOST = "host"
    HOST_NUMA = "host_numa"


class SupportsCudaStream(Protocol):
    """The CUDA stream protocol of NVIDIA's Python packages: ``(version, handle)``."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


#: An address: an integer, or an object that `int` turns into one.
DevicePointerType = Union[int, SupportsInt, None]

#: A number of bytes, or a text such as ``"512M"`` or ``"8G"``.
SizeLike = Union[int, str]

#: A device's number, a text such as ``"cuda:0"``, or the device of a framework: `torch.device`, `cupy.cuda.Device`,
#: `cuda.core.Device`, a device or context of Numba.
DeviceLike = Union[int, str, Any]

#: None (the device's default stream), a CUstream as an integer, an object with ``__cuda_stream__``, or a stream of
#: PyTorch, CuPy, cuda.core or Numba.
StreamLike = Optional[Union[int, SupportsCudaStream, Any]]
