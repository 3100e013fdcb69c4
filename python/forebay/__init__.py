"""Forebay: one GPU memory pool that every framework in a process shares.

Memory resources, buffers and their ways between libraries and processes, with the names and meanings of ``cuda.core``. Every
class translates to calls of Forebay's C ABI and decides nothing itself; ``include/forebay.h`` has what it does.

What the library logs, such as a bad free by a framework, comes to the logger ``forebay`` of `logging`, at the level of that
logger: one set on it counts at once, an inherited one as it is when a pool is made.

The variables ``FOREBAY_*`` are read at the first use of a pool. ``FOREBAY_DRIVER=host`` runs everything on RAM, without a GPU.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from . import _log as _log  # lets Python's logging hear the library
from . import _pickling as _pickling  # registers how these are sent
from . import typing
from ._buffer import Buffer
from ._errors import (
    CallError,
    ClosedError,
    ForebayError,
    InvalidArgumentError,
    NoDriverError,
    NotFoundError,
    NotPermittedError,
    OutOfMemoryError,
    PeerError,
    Status,
    UnsupportedError,
)
from ._ipc import IPCAllocationHandle, IPCBufferDescriptor, export_foreign, export_pointer, serve
from ._library import LibraryError, address_of
from ._library import path as library_path
from ._library import version as _version
from ._pool import Pool, PoolStats
from ._resources._attributes import _MemPoolAttributes as _MemPoolAttributes
from ._resources._base import MemoryResource
from ._resources._device import DeviceMemoryResource, DeviceMemoryResourceOptions
from ._resources._host import HostMemoryResource
from ._resources._managed import ManagedMemoryResource, ManagedMemoryResourceOptions
from ._resources._pinned import PinnedMemoryResource, PinnedMemoryResourceOptions
from ._resources._pool_resource import PoolMemoryResource
from ._resources._virtual import VirtualMemoryResource, VirtualMemoryResourceOptions
from ._stream import Stream, register_stream, unregister_stream
from .typing import (
    ManagedMemoryLocationType,
    VirtualMemoryAccessType,
    VirtualMemoryAllocationType,
    VirtualMemoryGranularityType,
    VirtualMemoryHandleType,
    VirtualMemoryLocationType,
)

#: The version of the library in use.
__version__: str = _version()

#: Parts that need a framework, or are needed by those: imported when first named, so that nobody pays for what he does not use.
_LATER = ("cuda_core", "cupy", "numba", "pressure", "rmm", "torch")


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Buffer",
    "CallError",
    "ClosedError",
    "DeviceMemoryResource",
    "DeviceMemoryResourceOptions",
    "ForebayError",
    "HostMemoryResource",
    "IPCAllocationHandle",
    "IPCBufferDescriptor",
    "InvalidArgumentError",
    "LibraryError",
    "ManagedMemoryLocationType",
    "ManagedMemoryResource",
    "ManagedMemoryResourceOptions",
    "MemoryResource",
    "NoDriverError",
    "NotFoundError",
    "NotPermittedError",
    "OutOfMemoryError",
    "PeerError",
    "PinnedMemoryResource",
    "PinnedMemoryResourceOptions",
    "Pool",
    "PoolMemoryResource",
    "PoolStats",
    "Status",
    "Stream",
    "UnsupportedError",
    "VirtualMemoryAccessType",
    "VirtualMemoryAllocationType",
    "VirtualMemoryGranularityType",
    "VirtualMemoryHandleType",
    "VirtualMemoryLocationType",
    "VirtualMemoryResource",
    "VirtualMemoryResourceOptions",
    "__version__",
    "address_of",
    "export_foreign",
    "export_pointer",
    "library_path",
    "register_stream",
    "serve",
    "typing",
    "unregister_stream",
]
