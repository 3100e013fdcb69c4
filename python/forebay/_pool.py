"""Forebay's own pools: the shared one of the process, and private ones."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int32, c_size_t, c_uint64, c_void_p
from typing import Any, NamedTuple, Optional

from . import _library, _log
from . import _structs as s
from ._arguments import as_bool, as_device, as_numa, as_size
from ._errors import Status, check, failure

FRAMEWORKS = ("c", "torch", "cupy", "numba", "cuda_core", "rmm")

_shared: Optional[int] = None


def shared_pool() -> int:
    """The C object of the shared pool. One is enough, and it stays: the shared pool lives until the process ends."""
    global _shared
    if _shared is None:
        _log.follow()
        out = c_void_p()
        check(_library.forebay_pool_shared(out))
        _shared = out.value
    return _shared or 0


def shared_pool_if_made() -> Optional[int]:
    """The same, if this package has asked for it before."""
    return _shared


def _new_capsule(handle: int) -> object:
    """What ends a pool with its last reference: no sooner, while ``__del__`` is called in any order in a cycle, and at exit."""
    return _capsule_new(handle, _CAPSULE, _library.address_of("forebay_pool_capsule_delete"))


# A capsule keeps a pointer to its name: these bytes live as long as the module.
_CAPSULE = b"forebay_pool"
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))


class PoolStats(NamedTuple):
    """A device's figures: bytes, and counts since the pool was made. Each is true of a moment, together perhaps of several."""

    live: int  #: given out: what was asked for, in blocks of 512 bytes, between 64 KiB and 1 MiB of up to 1/64 more
    live_peak: int  #: the most of it at once
    physical: int  #: memory of the device held
    physical_peak: int  #: the most of it
    limit: int  #: the most that may be held; 0: no limit
    free_bytes: int  #: held and not live
    largest_free: int  #: the longest free block
    private_bytes: int  #: free memory of private pools, as of captured graphs
    allocations: int  #: requests served
    frees: int  #: blocks taken back
    hits: int  #: requests served by a stream's cache
    misses: int  #: requests that came to the arena
    steals: int  #: chunks moved to where they were needed
    growths: int  #: chunks created
    waits: int  #: times a stream waited for another's fence
    releases: int  #: chunks given back to the driver
    out_of_memory: int  #: requests that failed for want of memory
    live_by_framework: dict[str, int]  #: live bytes by who asked
    streams: int  #: streams known
    free_blocks: int  #: free blocks, those that streams keep at hand included
    making_ns: int  #: nanoseconds that requests spent on making room: looking for it, and calls of the driver
    waiting_ns: int  #: nanoseconds that requests waited for work to be done and for others to give memory back


class Pool:
    """A pool of Forebay's: physical memory follows what is live, and every stream and framework shares what is free.

    Parameters
    ----------
    limit : int, optional
        The most physical memory to hold for each device, in bytes; 0: no limit. None: as the variable ``FOREBAY_LIMIT`` says.
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

    def __init__(self, *, limit: Optional[int] = None, pinned: bool = False, numa_id: Optional[int] = None) -> None:
        pinned = as_bool(pinned, "pinned")
        if numa_id is not None and not pinned:
            raise ValueError(f"numa_id is {numa_id} and pinned is False: only pinned memory has a NUMA node")
        options = s.Options()
        check(_library.forebay_pool_options_init(options))
        if limit is not None:
            options.limit = as_size(limit, "limit")
        if pinned:
            options.location = s.Location.HOST_NUMA
            options.numa_id = as_numa(numa_id)
        out = c_void_p()
        check(_library.forebay_pool_create(options, out))
        self._own(out)

    @classmethod
    def shared(cls) -> Pool:
        """The shared pool of the process, which the hooks of the frameworks use too. It lives until the process ends."""
        out = c_void_p()
        check(_library.forebay_pool_shared(out))
        pool = cls.__new__(cls)
        pool._own(out)
        return pool

    def _own(self, made: c_void_p) -> None:
        _log.follow()
        self._handle = made.value or 0
        self._capsule = _new_capsule(self._handle)

    def _stay(self) -> Pool:
        """Keeps the pool as long as the process: for who frees until the very end."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._capsule))
        return self

    @property
    def driver(self) -> str:
        """``"cuda"`` or ``"host"``."""
        name = _library.forebay_pool_driver_name(self._handle)
        if name is None:
            raise failure(Status.FORKED)
        return str(name.decode())

    @property
    def device_count(self) -> int:
        """How many devices the pool's driver has."""
        out = c_int32()
        check(_library.forebay_pool_device_count(self._handle, byref(out)))
        return out.value

    def stats(self, device_id: Any = 0) -> PoolStats:
        """The figures of a device."""
        raw = s.Stats(size=s.STATS_SIZE, version=s.VERSION)
        check(_library.forebay_pool_get_stats(self._handle, as_device(device_id), raw))
        by_framework = dict(zip(FRAMEWORKS, raw.live_by_framework))
        figures = {name: getattr(raw, name) for name in PoolStats._fields if name != "live_by_framework"}
        return PoolStats(live_by_framework=by_framework, **figures)

    def reset_peaks(self, device_id: Any = 0) -> None:
        """Makes the present figures the peaks."""
        check(_library.forebay_pool_reset_peaks(self._handle, as_device(device_id)))

    def trim(self, keep: int = 0, device_id: Any = 0) -> int:
        """Gives free memory back to the driver until at most `keep` bytes are held; answers how many bytes went.

        Waits on the host for work that still uses freed memory.
        """
        out = c_uint64()
        check(_library.forebay_pool_trim(self._handle, as_device(device_id), as_size(keep, "keep"), byref(out)))
        return out.value

    def limit(self, device_id: Any = 0) -> int:
        """The most bytes that may be held on a device; 0: no limit."""
        out = c_uint64()
        check(_library.forebay_pool_get_limit(self._handle, as_device(device_id), byref(out)))
        return out.value

    def set_limit(self, limit: int, device_id: Any = 0) -> None:
        """Sets the most bytes to hold on a device; 0: no limit. What is held above it stays until :meth:`trim`."""
        check(_library.forebay_pool_set_limit(self._handle, as_device(device_id), as_size(limit, "limit")))

    def memory_info(self, device_id: Any = 0) -> tuple[int, int]:
        """Memory of a device as the driver sees it, in bytes: free to everybody, and all there is."""
        free, total = c_uint64(), c_uint64()
        check(_library.forebay_pool_memory_info(self._handle, as_device(device_id), byref(free), byref(total)))
        return free.value, total.value

    def report(self, device_id: Any = 0) -> str:
        """A few lines about a device for a person, as an out-of-memory error has them."""
        device, needed = as_device(device_id), c_size_t()
        check(_library.forebay_pool_report(self._handle, device, None, 0, byref(needed)))
        while True:
            text = ctypes.create_string_buffer(needed.value)
            check(_library.forebay_pool_report(self._handle, device, text, len(text), byref(needed)))
            if needed.value <= len(text):  # else it has grown between the two calls
                return text.value.decode()

    def __reduce__(self) -> Any:
        # A copy would free the library's object twice.
        raise TypeError("a Pool is of its process: it cannot be copied or sent; send buffers of it")

    def __repr__(self) -> str:
        return f"<forebay.Pool driver={self.driver} handle={self._handle:#x}>"
