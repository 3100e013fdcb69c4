"""Blocks of a pool through ctypes, as the plug-ins of the frameworks take them. ``_fast`` does the same; see ``_hot.py``."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, Callable, Optional

from . import _library
from ._arguments import MAX_SIZE, as_pointer, as_size
from ._errors import Status, check, failure
from .typing import DevicePointerType

#: ``FOREBAY_FRAMEWORK_CUDA_CORE``: whom the figures count a block for.
_CUDA_CORE = 4

_malloc_for, _malloc_ready = _library.forebay_pool_malloc_for, _library.forebay_pool_malloc_ready

#: Gives a block back in the order of a stream: a status, since not everybody who frees can be told.
free: Callable[[int, int, int], int] = _library.forebay_pool_free

#: Gives a block back behind everything that its device has: a status, since who frees late forgives some.
free_after_all: Callable[[int, int], int] = _library.forebay_pool_free_after_all

# Output cells that no call is using, each with the reference to it that is passed: see `_plain`.
_cells: list[tuple[c_void_p, Any]] = []


def _new_cell() -> tuple[c_void_p, Any]:
    cell = c_void_p()
    return cell, byref(cell)


def malloc(pool: int, framework: int, size: int, device: int, stream: Optional[int]) -> int:
    """The address of a new block, in the order of a stream; 0 for a size of 0."""
    try:
        pair = _cells.pop()
    except IndexError:
        pair = _new_cell()
    status = _malloc_for(pool, framework, size, device, stream, pair[1])
    address = pair[0].value
    _cells.append(pair)
    if status:
        raise failure(status)
    return address or 0 if size else 0


def malloc_ready(pool: int, size: int, device: int) -> int:
    """The address of a new block of pinned memory that the host may touch at once."""
    cell, reference = _new_cell()
    check(_malloc_ready(pool, size, device, None, reference))
    return cell.value or 0


class CoreBase:
    """A memory resource of cuda.core's on a pool, with the two calls that are made for every piece of memory."""

    _raw: int
    _keep: object
    _device: int
    _host: bool
    _from_handle: Callable[..., Any]
    _queue: Callable[[Any], int]

    def _connect(
        self,
        pool: int,
        keep: object,
        device: int,
        on_host: bool,
        from_handle: Callable[..., Any],
        handle: Callable[[Any], int],
    ) -> None:
        """Says what to allocate from, what keeps that, how cuda.core makes a buffer, and who knows an unusual stream's handle."""
        self._raw, self._keep, self._device, self._host = pool, keep, device, on_host
        self._from_handle, self._queue = from_handle, handle

    def allocate(self, size: int, *, stream: Any) -> Any:
        """Gives a buffer, usable by work queued on `stream` from now on.

        Parameters
        ----------
        size : int
            Bytes. 0 gives a buffer without memory.
        stream : cuda.core.Stream or GraphBuilder
            In whose order the memory is given and, unless the buffer is told another one, taken back.

        Returns
        -------
        cuda.core.Buffer

        Raises
        ------
        MemoryError
            If there is no memory, after everything that could be given back was. The text has the pool's report.
        RuntimeError
            If the stream is being captured without a private pool.
        """
        if type(size) is not int or not 0 <= size <= MAX_SIZE:
            size = as_size(size)
        queue = self._queue(stream)
        if self._host:
            address = malloc_ready(self._raw, size, self._device)
        else:
            address = malloc(self._raw, _CUDA_CORE, size, self._device, queue)
        try:
            return self._from_handle(address, size, self, stream=stream)
        except TypeError:
            # No stream of cuda.core's. Whatever fails later ends a buffer that has the memory already.
            free(self._raw, address, queue)
            raise

    def deallocate(self, ptr: DevicePointerType, size: int, *, stream: Any) -> None:
        """Takes memory back in the order of `stream`. cuda.core calls this when a buffer ends. Does nothing in a forked child.

        Raises
        ------
        ValueError
            If the pool gave no such memory.
        """
        if type(ptr) is not int or not 0 <= ptr <= MAX_SIZE:
            ptr = as_pointer(ptr)
        status = free(self._raw, ptr, self._queue(stream))
        if status and status != Status.FORKED:
            check(status)
