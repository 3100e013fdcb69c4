"""The calls made for every piece of memory, through ctypes. The extension module ``_fast`` does the same; see ``_hot.py``."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from . import _library
from ._arguments import MAX_SIZE, as_size
from ._errors import failure
from ._stream import resolve
from .typing import StreamLike

if TYPE_CHECKING:
    from ._buffer import Buffer
    from ._resources._base import MemoryResource

_allocate = _library.forebay_resource_allocate
_close = _library.forebay_buffer_close
_new = object.__new__

B = TypeVar("B", bound="BufferBase")

# What makes the streams of live buffers live, by the library's handle of the buffer. Not an attribute of the buffer: when
# both are garbage in one cycle the stream could end before the buffer, and freeing on a stream that is gone is a crash.
_streams: dict[int, object] = {}

# Output cells that no call is using, each with the reference to it that is passed. A call takes one and puts it back: list
# operations are atomic, so two threads never share one, and none has to be made for each allocation.
_cells: list[tuple[c_void_p, Any]] = []


def _new_cell() -> tuple[c_void_p, Any]:
    cell = c_void_p()
    return cell, byref(cell)


class BufferBase:
    """A buffer of the library, with its end."""

    __slots__ = ("_handle", "_info", "_resource", "_special")

    #: The library's object, which lives as long as this one: any thread can ask a closed buffer.
    _handle: int
    #: The resource that the memory goes back to. Kept past a close.
    _resource: Optional[MemoryResource]
    #: What the library said of the buffer, until that can have changed.
    _info: Any
    #: What few buffers have.
    _special: Any

    @classmethod
    def _of(cls: type[B], handle: Optional[int], resource: Optional[MemoryResource], keep: object) -> B:
        """Takes the library's object over. `keep` is what makes the buffer's stream live."""
        self = _new(cls)
        self._handle, self._resource = handle or 0, resource
        self._info = self._special = None
        if keep is not None:
            _streams[self._handle] = keep
        return self

    def __del__(
        self,
        _destroy: _library.Function = _library.forebay_buffer_destroy,
        _forget: Callable[[int, object], object] = _streams.pop,
    ) -> None:
        # Names as defaults: at interpreter exit this module's may be gone already.
        kept = _forget(self._handle, None)
        _destroy(self._handle)
        del kept

    def close(self, stream: StreamLike = None) -> None:
        """Gives the memory back (document 001). Twice is harmless.

        Parameters
        ----------
        stream : stream, optional
            In whose order; None: that of the allocation, or of the import.

        Raises
        ------
        RuntimeError
            If it cannot be closed there, as on a stream that is being captured; the buffer is then still open.
        """
        if stream is not None or self._special is not None:
            self._close_with(stream)
        else:
            status = _close(self._handle)
            if status:
                raise failure(status)
        _streams.pop(self._handle, None)
        self._info = self._special = None

    def _close_with(self, stream: StreamLike) -> None:
        """Closes where more than the plain call is needed."""
        raise NotImplementedError


class ResourceBase:
    """A resource of the library, with the call that is made for every piece of memory."""

    __slots__ = ("_handle",)

    #: The library's object; None before the constructor made one.
    _handle: Optional[int]

    def __new__(cls) -> Any:
        self = _new(cls)
        self._handle = None  # for `__del__`, should the constructor raise
        return self

    def __del__(self, _destroy: _library.Function = _library.forebay_resource_destroy) -> None:
        if self._handle is not None:
            _destroy(self._handle)

    def allocate(self, size: int, stream: StreamLike = None) -> Buffer:
        """Gives a buffer of `size` bytes, usable by work queued on `stream` from now on.

        Parameters
        ----------
        size : int
            Bytes. 0 gives a buffer without memory.
        stream : stream, optional
            In whose order the memory is given and, unless `Buffer.close` names another, taken back. None: the device's
            default stream.

        Raises
        ------
        MemoryError
            If there is no memory, after everything that could be given back was.
        TypeError
            If `size` is no integer, or `stream` no stream.
        ValueError
            If `size` is negative.
        RuntimeError
            If the resource is closed, mapped from another process, or the stream is being captured.
        """
        if type(size) is not int or not 0 <= size <= MAX_SIZE:
            size = as_size(size)
        raw, keep = (None, None) if stream is None else resolve(stream)
        try:
            pair = _cells.pop()
        except IndexError:
            pair = _new_cell()
        status = _allocate(self._handle, size, raw, pair[1])
        handle = pair[0].value
        _cells.append(pair)
        if status:
            raise failure(status)
        return _buffer_of(handle, self, keep)


_buffer_of: Callable[..., Buffer]


def connect(buffer: type[Buffer]) -> None:
    """Names the class of the buffers that resources give."""
    global _buffer_of
    _buffer_of = buffer._of
