"""Pinned memory of Forebay's for CuPy."""

from __future__ import annotations

from typing import Any, Optional

from .. import _library
from .._errors import check
from .._frameworks import malloc_ready, need, pinned_pool, raw
from .._pool import Pool
from .._resources._pool_resource import PoolMemoryResource
from ._connect import UNIT, device_of_now

_Pointer: Any = need("cupy.cuda.pinned_memory", "CuPy", "cupy-cuda13x").PinnedMemoryPointer

#: Blocks up to so many bytes are kept at hand: so many bytes of a size, and so many sizes. Longer ones serve everybody through
#: the pool.
_SMALL, _OF_A_SIZE, _SIZES = 1 << 20, 4 << 20, 64

_new = object.__new__


class _Memory:
    """A block. CuPy's pointers refer to it by `ptr` and `size`; the last of them ends it."""

    __slots__ = ("__weakref__", "_pool", "ptr", "size")

    ptr: int
    size: int
    _pool: PinnedMemoryPool

    def __int__(self) -> int:
        return self.ptr

    def __del__(self) -> None:
        ptr, pool = self.ptr, self._pool
        if ptr and pool._in_use.get(ptr) == id(self):
            pool._take_back(ptr, self.size)


class PinnedMemoryPool:
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
    The host may touch the memory at once. As with CuPy's own pool, who queues work on it keeps it until that is done; CuPy
    does that for its own copies. Blocks up to 1 MiB are handed out again at once; longer ones go back behind everything that
    the device has, and may then serve anybody.
    """

    def __init__(self, pool: Optional[Pool] = None) -> None:
        self._pool = pinned_pool() if pool is None else pool
        self._raw = raw(self._pool)
        if pool is not None and not PoolMemoryResource(0, pool).is_host_accessible:
            raise ValueError("pool gives memory of a device: make one with Pool(pinned=True)")
        self._free: dict[int, list[int]] = {}
        # By address, the id of the object that it belongs to: one whose block was freed by hand owns nothing any more.
        self._in_use: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._devices: set[int] = set()

    def malloc(self, size: int) -> Any:
        """Gives pinned memory.

        Parameters
        ----------
        size : int
            Bytes, rounded up to 512.

        Returns
        -------
        cupy.cuda.PinnedMemoryPointer
        """
        memory = _new(_Memory)
        memory.size = size = (size + UNIT - 1) & -UNIT
        memory._pool, memory.ptr = self, 0
        try:
            address = self._free[size].pop()
        except (KeyError, IndexError):
            address = self._more(size) if size else 0
        memory.ptr = address
        self._in_use[address] = id(memory)
        return _Pointer(memory, 0)

    def free(self, ptr: int, size: int) -> None:
        """Takes a block back before its last pointer is gone.

        Raises
        ------
        RuntimeError
            If there is no such block in use.
        """
        size = (size + UNIT - 1) & -UNIT
        if ptr not in self._in_use or self._sizes.get(ptr) != size:
            raise RuntimeError(f"{ptr:#x} with {size} bytes is no block of this pool that is in use")
        self._take_back(ptr, size)

    def free_all_blocks(self) -> None:
        """Gives all free memory back to the system. Waits for work that still uses it."""
        for addresses in list(self._free.values()):
            # Other threads may take and add meanwhile: each block is taken once.
            while addresses:
                try:
                    address = addresses.pop()
                except IndexError:
                    break
                self._give_back(address)
        for device in list(self._devices):
            self._pool.trim(0, device)

    def n_free_blocks(self) -> int:
        """How many free blocks there are, at hand and in the pool."""
        at_hand = sum(map(len, list(self._free.values())))
        return at_hand + sum(self._pool.stats(device).free_blocks for device in list(self._devices))

    def _more(self, size: int) -> int:
        device = device_of_now()
        self._devices.add(device)
        address = malloc_ready(self._raw, size, device)
        self._sizes[address] = size
        return address

    def _take_back(self, ptr: int, size: int) -> None:
        del self._in_use[ptr]
        if size <= _SMALL:
            free = self._free.get(size)
            if free is None and len(self._free) < _SIZES:
                free = self._free.setdefault(size, [])
            if free is not None and len(free) * size < _OF_A_SIZE:
                free.append(ptr)
                return
        self._give_back(ptr)

    def _give_back(self, ptr: int) -> None:
        del self._sizes[ptr]
        check(_library.forebay_free_behind_everything(self._raw, ptr))
