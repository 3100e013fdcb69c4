"""Forebay: one GPU memory pool that every framework in a process shares.

Memory resources, buffers and their ways between libraries and processes, with the names and meanings of ``cuda.core``.
Every class translates to calls of Forebay's C ABI and decides nothing itself; ``include/forebay.h`` has what it does.

What the library logs, such as a bad free by a framework, comes to the logger ``forebay`` of `logging`, at the level of
that logger: one set on it counts at once, an inherited one as it is when a pool is made.

The variables ``FOREBAY_*`` are read at the first use of a pool. ``FOREBAY_DRIVER=host`` runs everything on RAM, without
a GPU.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING

from . import _load as _load  # the extension, before all that needs it

# isort: split
from . import _core, typing
from . import _log as _log  # lets Python's logging hear the library
from . import _multiprocessing as _multiprocessing  # registers how these are sent
from ._core import address_of
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
from ._memory._buffer import Buffer
from ._memory._device_memory_resource import DeviceMemoryResource, DeviceMemoryResourceOptions
from ._memory._host_memory_resource import HostMemoryResource
from ._memory._ipc import IPCAllocationHandle, IPCBufferDescriptor, export_foreign, export_pointer, serve
from ._memory._managed_memory_resource import ManagedMemoryResource, ManagedMemoryResourceOptions
from ._memory._memory_pool_attributes import _MemPoolAttributes as _MemPoolAttributes
from ._memory._memory_resource import MemoryResource
from ._memory._pinned_memory_resource import PinnedMemoryResource, PinnedMemoryResourceOptions
from ._memory._pool_memory_resource import PoolMemoryResource
from ._memory._virtual_memory_resource import VirtualMemoryResource, VirtualMemoryResourceOptions
from ._pool import Pool, PoolStats
from ._set_module import set_module as _set_module
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
__version__: str = _core.version()

#: The path of the library in use. Frameworks that are told to allocate through Forebay must open this file: another
#: copy would have a pool of its own.
library_path: str = _core.library_path()

if TYPE_CHECKING:
    from . import cuda_core as cuda_core
    from . import cupy as cupy
    from . import numba as numba
    from . import pressure as pressure
    from . import rmm as rmm
    from . import torch as torch
else:
    #: Parts that need a framework, or are needed by those: imported when first named, so that nobody pays for what he
    #: does not use.
    _LATER = ("cuda_core", "cupy", "numba", "pressure", "rmm", "torch")

    def __getattr__(name):
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

_set_module(globals())
