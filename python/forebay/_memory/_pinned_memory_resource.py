"""Page-locked host memory from a stream-ordered pool of the driver."""

from __future__ import annotations

import uuid as _uuid
from dataclasses import dataclass
from typing import Any, Optional, Union

from .. import _core
from .._arguments import as_bool, as_numa, as_options, as_size
from ..typing import SizeLike
from ._ipc import IPCAllocationHandle
from ._memory_pool import SharedMemoryPool


@dataclass
class PinnedMemoryResourceOptions:
    """How a `PinnedMemoryResource` makes its pool.

    Attributes
    ----------
    ipc_enabled : bool
        Whether the pool can be shared with other processes.
    max_size : int or str
        The most bytes the pool may hold; 0: as the system allows.
    numa_id : int, optional
        The host NUMA node. None: for a pool that is shared, the node of the current device, which is device 0 where no
        CUDA context is current; else the system's choice.

    Notes
    -----
    The fields are those of `cuda.core.PinnedMemoryResourceOptions
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.PinnedMemoryResourceOptions.html>`_.
    """

    ipc_enabled: bool = False
    max_size: SizeLike = 0
    numa_id: Optional[int] = None


class PinnedMemoryResource(SharedMemoryPool, kind=_core.RESOURCE_KIND_PINNED):
    """Page-locked host memory, given and taken back in the order of streams.

    Parameters
    ----------
    options : PinnedMemoryResourceOptions or dict, optional
        Makes a new pool, which the resource owns. None: the driver's current pool of host memory, which it does not
        own.

    Raises
    ------
    ValueError
        If an option is out of range.
    NotImplementedError
        If the driver has no such pools.

    Notes
    -----
    Has the members of `cuda.core.PinnedMemoryResource
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.PinnedMemoryResource.html>`_. Any thread
    may use it. Memory is ready for the host once its stream was waited for. Streams of every device can allocate and
    free, and every device can use the memory.
    """

    __slots__ = ()
    _kind = _core.RESOURCE_KIND_PINNED

    def __init__(self, options: Union[PinnedMemoryResourceOptions, dict[str, Any], None] = None) -> None:
        if options is None:
            self._handle = _core.pinned_resource_create(_core.POOL_SOURCE_CURRENT, False, 0, -1)
            return
        given = as_options(PinnedMemoryResourceOptions, options)
        ipc_enabled, max_size = as_bool(given.ipc_enabled, "ipc_enabled"), as_size(given.max_size, "max_size")
        self._handle = _core.pinned_resource_create(_core.POOL_SOURCE_NEW, ipc_enabled, max_size, as_numa(given.numa_id))

    @classmethod
    def from_allocation_handle(cls, alloc_handle: Union[int, IPCAllocationHandle]) -> PinnedMemoryResource:
        """Maps a pool that another process shares.

        Parameters
        ----------
        alloc_handle : int or IPCAllocationHandle
            The pool's file descriptor, which stays the caller's. A handle brings its key: a resource that is registered
            under it is answered, else the new one is registered.
        """
        return cls._import(-1, alloc_handle)  # type: ignore[no-any-return]

    @staticmethod
    def from_registry(uuid: _uuid.UUID) -> PinnedMemoryResource:
        """The mapped resource registered under a key.

        Raises
        ------
        RuntimeError
            If there is none.
        """
        return PinnedMemoryResource._registered(uuid)  # type: ignore[no-any-return]

    @property
    def numa_id(self) -> int:
        """The host NUMA node of the memory; -1: left to the system."""
        return self._info().numa_id
