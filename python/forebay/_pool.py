"""Forebay's own pools: the shared one of the process, and private ones."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from . import _core, _log
from ._arguments import as_bool, as_device, as_numa, as_size
from ._errors import Status, failure
from .typing import DeviceLike, SizeLike

#: By the name that the figures have, ``FOREBAY_FRAMEWORK_*``.
FRAMEWORKS = {
    "c": _core.FRAMEWORK_C,
    "torch": _core.FRAMEWORK_TORCH,
    "cupy": _core.FRAMEWORK_CUPY,
    "numba": _core.FRAMEWORK_NUMBA,
    "cuda_core": _core.FRAMEWORK_CUDA_CORE,
    "rmm": _core.FRAMEWORK_RMM,
}

_shared: Optional[int] = None


def shared_pool() -> int:
    """The C object of the shared pool. One is enough, and it stays: the shared pool lives until the process ends."""
    global _shared
    if _shared is None:
        _log.follow()
        _shared = _core.pool_shared()
    return _shared


def shared_pool_if_made() -> Optional[int]:
    """The same, if this package has asked for it before."""
    return _shared


class PoolStats(NamedTuple):
    """A device's figures: bytes, and counts since the pool was made. Each is true of a moment, together perhaps of
    several."""

    live: int
    live_peak: int
    physical: int
    physical_peak: int
    limit: int
    free_bytes: int
    largest_free: int
    private_bytes: int
    allocations: int
    frees: int
    hits: int
    misses: int
    steals: int
    growths: int
    waits: int
    releases: int
    out_of_memory: int
    live_by_framework: dict[str, int]
    streams: int
    free_blocks: int
    making_ns: int
    waiting_ns: int


_FIELDS = {
    "live": "Given out: what was asked for, in blocks of 512 bytes, between 64 KiB and 1 MiB of up to 1/64 more.",
    "live_peak": "The most of it at once.",
    "physical": "Memory of the device held.",
    "physical_peak": "The most of it.",
    "limit": "The most that may be held; 0: no limit.",
    "free_bytes": "Held and not live.",
    "largest_free": "The longest free block.",
    "private_bytes": "Free memory of private pools, as of captured graphs.",
    "allocations": "Requests served.",
    "frees": "Blocks taken back.",
    "hits": "Requests served by a stream's cache.",
    "misses": "Requests that came to the arena.",
    "steals": "Chunks moved to where they were needed.",
    "growths": "Chunks created.",
    "waits": "Times a stream waited for another's fence.",
    "releases": "Chunks given back to the driver.",
    "out_of_memory": "Requests that failed for want of memory.",
    "live_by_framework": "Live bytes by who asked.",
    "streams": "Streams known.",
    "free_blocks": "Free blocks, those that streams keep at hand included.",
    "making_ns": "Nanoseconds that requests spent on making room: looking for it, and calls of the driver.",
    "waiting_ns": "Nanoseconds that requests waited for work to be done and for others to give memory back.",
}
for _name, _text in _FIELDS.items():
    getattr(PoolStats, _name).__doc__ = _text


class Pool:
    """A pool of Forebay's: physical memory follows what is live, and every stream and framework shares what is free.

    Parameters
    ----------
    limit : int or str, optional
        The most physical memory to hold for each device, in bytes or as ``"8G"``; 0: no limit. None: as the variable
        ``FOREBAY_LIMIT`` says.
    pinned : bool
        Page-locked host memory instead of a device's.
    numa_id : int, optional
        The NUMA node of pinned memory; None: the node nearest to each device.

    Raises
    ------
    ValueError
        For a number out of range, or a ``numa_id`` without ``pinned``.
    NotImplementedError
        If the driver has no pinned memory of that kind.

    Notes
    -----
    The pool ends with its last Python object, the resources made of it and their open buffers. Any thread may use it.
    """

    __slots__ = ("__weakref__", "_capsule", "_handle")

    #: The library's object, and what keeps it: who frees later than this object may end keeps that.
    _handle: int
    _capsule: object

    def __init__(self, *, limit: Optional[SizeLike] = None, pinned: bool = False, numa_id: Optional[int] = None) -> None:
        pinned = as_bool(pinned, "pinned")
        if numa_id is not None and not pinned:
            raise ValueError(f"numa_id is {numa_id} and pinned is False: only pinned memory has a NUMA node")
        size = None if limit is None else as_size(limit, "limit")
        location = _core.LOCATION_HOST_NUMA if pinned else _core.LOCATION_DEVICE
        self._own(_core.pool_create(size, location, as_numa(numa_id)))

    @classmethod
    def shared(cls) -> Pool:
        """The shared pool of the process, which the hooks of the frameworks use too. It lives until the process
        ends."""
        pool = cls.__new__(cls)
        pool._own(_core.pool_shared())
        return pool

    def _own(self, handle: int) -> None:
        _log.follow()
        self._handle, self._capsule = handle, _core.pool_capsule(handle)

    def _stay(self) -> Pool:
        """Keeps the pool as long as the process: for who frees until the very end."""
        _core.keep_for_good(self._capsule)
        return self

    @property
    def driver(self) -> str:
        """``"cuda"`` or ``"host"``."""
        name = _core.pool_driver_name(self._handle)
        if name is None:
            raise failure(Status.FORKED)
        return name

    @property
    def device_count(self) -> int:
        """How many devices the pool's driver has."""
        return _core.pool_device_count(self._handle)

    def stats(self, device_id: DeviceLike = 0) -> PoolStats:
        """The figures of a device: bytes, and counts since the pool was made. Does not stop allocations.

        Parameters
        ----------
        device_id : int, str or device
            A device in any of the ways of `forebay.typing.DeviceLike`.

        Raises
        ------
        ValueError
            If there is no such device.
        """
        figures = _core.pool_get_stats(self._handle, as_device(device_id))
        live = figures.pop("live_by_framework")
        return PoolStats(live_by_framework={name: live[number] for name, number in FRAMEWORKS.items()}, **figures)

    def reset_peaks(self, device_id: DeviceLike = 0) -> None:
        """Makes the present figures the peaks."""
        _core.pool_reset_peaks(self._handle, as_device(device_id))

    def trim(self, keep: SizeLike = 0, device_id: DeviceLike = 0) -> int:
        """Gives free memory back to the driver. Waits on the host for work that still uses freed memory.

        Parameters
        ----------
        keep : int or str
            The most bytes that stay held.
        device_id : int, str or device
            A device in any of the ways of `forebay.typing.DeviceLike`.

        Returns
        -------
        int
            How many bytes went.

        Raises
        ------
        ValueError
            If there is no such device.
        """
        return _core.pool_trim(self._handle, as_device(device_id), as_size(keep, "keep"))

    def limit(self, device_id: DeviceLike = 0) -> int:
        """The most bytes that may be held on a device; 0: no limit."""
        return _core.pool_get_limit(self._handle, as_device(device_id))

    def set_limit(self, limit: SizeLike, device_id: DeviceLike = 0) -> None:
        """Sets the most bytes to hold on a device. What is held above it stays until :meth:`trim`.

        Parameters
        ----------
        limit : int or str
            Bytes; 0: no limit.
        device_id : int, str or device
            A device in any of the ways of `forebay.typing.DeviceLike`.

        Raises
        ------
        ValueError
            If there is no such device.
        """
        _core.pool_set_limit(self._handle, as_device(device_id), as_size(limit, "limit"))

    def memory_info(self, device_id: DeviceLike = 0) -> tuple[int, int]:
        """Memory of a device as the driver sees it, in bytes: free to everybody, and all there is."""
        return _core.pool_memory_info(self._handle, as_device(device_id))

    def report(self, device_id: DeviceLike = 0) -> str:
        """A few lines about a device for a person, as an out-of-memory error has them."""
        return _core.pool_report(self._handle, as_device(device_id))

    def __reduce__(self) -> Any:
        # A copy would free the library's object twice.
        raise TypeError("a Pool is of its process: it cannot be copied or sent; send buffers of it")

    def __repr__(self) -> str:
        return f"<forebay.Pool driver={self.driver} handle={self._handle:#x}>"
