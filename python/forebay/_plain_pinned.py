"""Blocks of pinned memory that are kept at hand, in Python. The extension ``_fast`` does the same; see ``_hot.py``."""

from __future__ import annotations

from typing import Any, Callable

from ._arguments import MAX_SIZE, as_pointer, as_size

#: Blocks up to so many bytes are kept at hand: so many bytes of a size, and so many sizes. Longer ones serve everybody through
#: the pool.
_SMALL, _OF_A_SIZE, _SIZES = 1 << 20, 4 << 20, 64
_UNIT = 512

_new = object.__new__


class PinnedBlock:
    """A block. CuPy's pointers refer to it by `ptr` and `size`; the last of them ends it."""

    __slots__ = ("__weakref__", "_pool", "ptr", "size")

    ptr: int
    size: int
    _pool: PinnedBase

    def __int__(self) -> int:
        return self.ptr

    def __del__(self) -> None:
        ptr, pool = self.ptr, self._pool
        if ptr and pool._in_use.get(ptr, (0, 0))[1] == id(self):
            pool._take_back(ptr, self.size)


class PinnedBase:
    """Pinned memory with blocks kept at hand. A class derived from it gets and gives back the others."""

    def _connect(self, pointer: Callable[[Any, int], Any]) -> None:
        """Names the class of the pointers that are handed out."""
        self._pointer = pointer
        self._free: dict[int, list[int]] = {}
        # By address: the size, and the id of the object that the block belongs to. An object whose block was freed by hand
        # owns nothing any more.
        self._in_use: dict[int, tuple[int, int]] = {}

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
        if type(size) is not int or not 0 <= size <= MAX_SIZE:
            size = as_size(size)
        block = _new(PinnedBlock)
        block.size = size = (size + _UNIT - 1) & -_UNIT
        block._pool, block.ptr = self, 0
        try:
            address = self._free[size].pop()
        except (KeyError, IndexError):
            address = self._more(size) if size else 0
        block.ptr = address
        self._in_use[address] = size, id(block)
        return self._pointer(block, 0)

    def free(self, ptr: int, size: int) -> None:
        """Takes a block back before its last pointer is gone.

        Raises
        ------
        RuntimeError
            If there is no such block in use.
        """
        address, size = as_pointer(ptr), (as_size(size) + _UNIT - 1) & -_UNIT
        if self._in_use.get(address, (-1, 0))[0] != size:
            raise RuntimeError(f"{address:#x} with {size} bytes is no block of this pool that is in use")
        self._take_back(address, size)

    def _take_at_hand(self) -> list[int]:
        """Takes everything that is at hand away, to be given back."""
        taken = []
        for addresses in list(self._free.values()):
            # Other threads may take and add meanwhile: each block is taken once.
            while addresses:
                try:
                    taken.append(addresses.pop())
                except IndexError:
                    break
        return taken

    def _at_hand(self) -> int:
        """How many blocks are at hand."""
        return sum(map(len, list(self._free.values())))

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

    def _more(self, size: int) -> int:
        """A new block's address."""
        raise NotImplementedError

    def _give_back(self, ptr: int) -> None:
        """Gives a block back to where it came from."""
        raise NotImplementedError
