"""Page-locked host memory from a stream-ordered pool of the driver."""

from __future__ import annotations

import uuid as _uuid
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any, Optional, Union

from .. import _library
from .. import _structs as s
from .._arguments import as_bool, as_numa, as_options, as_size
from .._errors import check
from .._ipc import IPCAllocationHandle
from ._library_resource import _info
from ._pooled import SharedPoolResource


@dataclass
class PinnedMemoryResourceOptions:
    """How a `PinnedMemoryResource` makes its pool.

    Attributes
    ----------
    ipc_enabled : bool
        Whether the pool can be shared with other processes.
    max_size : int
        The most bytes the pool may hold; 0: as the system allows.
    numa_id : int, optional
        The host NUMA node. None: for a pool that is shared, the node of the current device, which is device 0 where no CUDA
        context is current; else the system's choice.
    """

    ipc_enabled: bool = False
    max_size: int = 0
    numa_id: Optional[int] = None


class PinnedMemoryResource(SharedPoolResource, kind=s.ResourceKind.PINNED):
    """Page-locked host memory, given and taken back in the order of streams (document 000).

    Parameters
    ----------
    options : PinnedMemoryResourceOptions or dict, optional
        Makes a new pool, which the resource owns. None: the driver's current pool of host memory, which it does not own.

    Raises
    ------
    ValueError
        If an option is out of range.
    NotImplementedError
        If the driver has no such pools.

    Notes
    -----
    Streams of every device can allocate and free, and every device can use the memory.
    """

    __slots__ = ()
    _kind = s.ResourceKind.PINNED

    def __init__(self, options: Union[PinnedMemoryResourceOptions, dict[str, Any], None] = None) -> None:
        raw = None
        if options is not None:
            given = as_options(PinnedMemoryResourceOptions, options)
            raw = s.PinnedOptions()
            check(_library.forebay_pinned_resource_options_init(raw))
            raw.ipc_enabled = as_bool(given.ipc_enabled, "ipc_enabled")
            raw.max_size = as_size(given.max_size, "max_size")
            raw.numa_id = as_numa(given.numa_id)
        out = c_void_p()
        check(_library.forebay_pinned_resource_create(raw, out))
        self._handle = out.value

    @classmethod
    def from_allocation_handle(cls, alloc_handle: Union[int, IPCAllocationHandle]) -> PinnedMemoryResource:
        """Maps a pool that another process shares (document 000).

        Parameters
        ----------
        alloc_handle : int or IPCAllocationHandle
            The pool's file descriptor, which stays the caller's. A handle brings its key: a resource that is registered
            under it is answered, else the new one is registered.
        """
        return cls._import(-1, alloc_handle)  # type: ignore[no-any-return]

    @staticmethod
    def from_registry(uuid: _uuid.UUID) -> PinnedMemoryResource:
        """The mapped resource registered under a key (document 000).

        Raises
        ------
        RuntimeError
            If there is none.
        """
        return PinnedMemoryResource._registered(uuid)  # type: ignore[no-any-return]

    @property
    def numa_id(self) -> int:
        """The host NUMA node of the memory; -1: left to the system."""
        return int(_info(self._handle).numa_id)
