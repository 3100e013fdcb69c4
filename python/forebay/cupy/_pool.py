"""A pool of Forebay's with the members of CuPy's ``MemoryPool``."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional

from .. import _core
from .._frameworks import raw
from .._pool import Pool
from ..typing import SizeLike, StreamLike
from ._connect import connect, device_of_now, limit_of, memory

# CuPy's memory keeps no reference to its allocator, so a pool that gave any must live as long as the process.
_kept: dict[int, Pool] = {}


class MemoryPool:
    """What `cupy.cuda.MemoryPool` is, on a pool of Forebay's. Every figure is of CuPy's current device.

    Parameters
    ----------
    pool : forebay.Pool, optional
        None: the shared pool, whose figures and limit are those of all frameworks together. Another pool, once given
        here, lives until the process ends.

    Raises
    ------
    TypeError
        If `pool` is no Pool.

    The members are those of `cupy.cuda.MemoryPool
    <https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.MemoryPool.html>`_.
    """

    #: Allocates bytes on the current device, in the order of the current stream, as `cupy.cuda.set_allocator` takes it.
    malloc: Callable[[int], Any]

    def __init__(self, pool: Optional[Pool] = None) -> None:
        param = 0 if pool is None else raw(pool)
        if pool is not None and param not in _kept:
            _kept[param] = pool._stay()
        self._pool = Pool.shared() if pool is None else pool
        connect()
        hooks = _core.address_of("forebay_cupy_malloc"), _core.address_of("forebay_cupy_free")
        # The method of CuPy's own object: nothing of Python stands between an array and the pool.
        self.malloc = memory.CFunctionAllocator(param, *hooks, self._pool).malloc

    def free_all_blocks(self, stream: StreamLike = None) -> None:
        """Gives all free memory back to the driver. Waits for work that still uses freed memory, of any stream."""
        self._pool.trim(0, device_of_now())

    def release_captures(self) -> int:
        """Gives back the memory of graphs that CuPy captured on the current device; answers how many captures that
        were.

        What is allocated while a stream is being captured stays with that capture, so that its graph can be launched at
        any time, and nobody says when the graph is destroyed. Call this when those graphs will not be launched again
        and none is being captured. Arrays made during a capture stay valid and go back when they are freed.
        """
        return _core.pool_release_captures(self._pool._handle, device_of_now())

    def free_all_free(self) -> None:
        """An older name of :meth:`free_all_blocks`."""
        warnings.warn("free_all_free is deprecated: use free_all_blocks", DeprecationWarning, stacklevel=2)
        self.free_all_blocks()

    def n_free_blocks(self) -> int:
        """How many free blocks there are."""
        return self._pool.stats(device_of_now()).free_blocks

    def used_bytes(self) -> int:
        """Bytes given out, to whichever framework."""
        return self._pool.stats(device_of_now()).live

    def free_bytes(self) -> int:
        """Bytes held and not given out."""
        return self._pool.stats(device_of_now()).free_bytes

    def total_bytes(self) -> int:
        """Bytes held."""
        return self._pool.stats(device_of_now()).physical

    def set_limit(self, size: Optional[SizeLike] = None, fraction: Optional[float] = None) -> None:
        """Sets the most bytes to hold: as a number, or as a share of the device's memory. Neither, or 0: no limit.

        Raises
        ------
        ValueError
            For both at once, or a number out of range.
        OverflowError
            For a size from 2**64 on, as in CuPy.
        """
        device = device_of_now()
        total = self._pool.memory_info(device)[1] if fraction is not None else 0
        self._pool.set_limit(limit_of(size, fraction, total), device)

    def get_limit(self) -> int:
        """The most bytes to hold; 0: no limit."""
        return self._pool.limit(device_of_now())

    def __repr__(self) -> str:
        return f"<forebay.cupy.MemoryPool of {self._pool!r}>"
