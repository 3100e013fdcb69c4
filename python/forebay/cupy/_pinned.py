"""Pinned memory of Forebay's for CuPy."""

from __future__ import annotations

from typing import Any, Optional

from .. import _core
from .._errors import Status, failure
from .._frameworks import need, pinned_pool, raw
from .._memory._pool_memory_resource import PoolMemoryResource
from .._pool import Pool
from ._connect import device_of_now

_Pointer: Any = need("cupy.cuda.pinned_memory", "CuPy", "cupy-cuda13x").PinnedMemoryPointer


class PinnedMemoryPool(_core.PinnedBase):
    """What `cupy.cuda.PinnedMemoryPool` is, on pinned memory of Forebay's: for `cupy.cuda.set_pinned_memory_allocator`.

    Parameters
    ----------
    pool : forebay.Pool, optional
        A pool made with ``pinned=True``. None: the one that CuPy and Numba share here.

    Raises
    ------
    TypeError, ValueError
        If `pool` is no such pool.

    Notes
    -----
    The host may touch the memory at once. As with CuPy's own pool, who queues work on it keeps it until that is done;
    CuPy does that for its own copies. Blocks up to 1 MiB are handed out again at once; longer ones go back behind
    everything that the device has, and may then serve anybody.

    The members are those of `cupy.cuda.PinnedMemoryPool
    <https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.PinnedMemoryPool.html>`_.
    """

    def __init__(self, pool: Optional[Pool] = None) -> None:
        self._pool = pinned_pool() if pool is None else pool
        self._raw, self._keep = raw(self._pool), self._pool._capsule
        if pool is not None and not PoolMemoryResource(0, pool).is_host_accessible:
            raise ValueError("pool gives memory of a device: make one with Pool(pinned=True)")
        self._devices: set[int] = set()
        self._connect(_Pointer)

    def free_all_blocks(self) -> None:
        """Gives all free memory back to the system. Waits for work that still uses it."""
        for address in self._take_at_hand():
            self._give_back(address)
        for device in list(self._devices):
            self._pool.trim(0, device)

    def n_free_blocks(self) -> int:
        """How many free blocks there are, at hand and in the pool."""
        return self._at_hand() + sum(self._pool.stats(device).free_blocks for device in list(self._devices))

    def _more(self, size: int) -> int:
        device = device_of_now()
        self._devices.add(device)
        return _core.malloc_ready(self._raw, size, device)

    def _give_back(self, ptr: int) -> None:
        status = _core.free_after_all(self._raw, ptr)
        # Blocks end in finalizers: in a forked child they are the parent's, and nobody can be told.
        if status not in (Status.OK, Status.FORKED):
            raise failure(status)
