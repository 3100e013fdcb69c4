"""Streams: those of this package, and what counts as a stream elsewhere."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Callable, Optional

from . import _core
from ._arguments import MAX_SIZE, as_device
from ._errors import ForebayError
from ._pool import Pool, shared_pool
from .typing import DeviceLike, StreamLike

#: The legacy default stream under the number that DLPack and the CUDA Array Interface give it.
LEGACY_DEFAULT = 1


class _Created:
    """A stream that the library made. Ends with its last user: a buffer that will be freed in its order is one."""

    __slots__ = ("device_id", "handle", "pool")

    def __init__(self, device_id: int) -> None:
        # Set first, so that `__del__` finds it whatever happens next.
        self.handle: Optional[int] = None
        self.device_id, self.pool = device_id, shared_pool()
        self.handle = _core.stream_create(self.pool, device_id)

    def __del__(self, _destroy: Callable[[int, int, int], None] = _core.stream_destroy, _failed: Any = ForebayError) -> None:
        # Names as defaults: at the interpreter's end this module's may be gone already.
        if self.handle is not None:
            with suppress(_failed):  # in a forked child it is the parent's
                _destroy(self.pool, self.device_id, self.handle)


class Stream:
    """A CUDA stream of its own, which does not synchronise with the legacy default stream.

    Parameters
    ----------
    device : int or object with ``device_id``
        The device, counted from 0.

    Raises
    ------
    ValueError
        If there is no such device.
    RuntimeError
        If there is no usable driver.

    Notes
    -----
    The stream is registered with the shared pool, so that freeing on it costs no event. Any thread may use it. Buffers
    that were allocated on it keep it: after :meth:`close` it ends with the last of them.

    It goes wherever a `cuda.core.Stream
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.Stream.html>`_ does: it has
    ``__cuda_stream__``.
    """

    __slots__ = ("__weakref__", "_created")

    def __init__(self, device: DeviceLike = 0) -> None:
        self._created: Optional[_Created] = None
        self._created = _Created(as_device(device, "device"))

    def _open(self) -> _Created:
        if self._created is None:
            raise ValueError("the stream is closed: it cannot be used any more")
        return self._created

    @property
    def handle(self) -> int:
        """The CUstream as an integer."""
        return self._open().handle or 0

    @property
    def device_id(self) -> int:
        """The device of the stream."""
        return self._open().device_id

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._created is None

    def sync(self) -> None:
        """Waits on the host until the work queued so far is done."""
        created = self._open()
        synchronize(created.device_id, created.handle or 0)

    def close(self) -> None:
        """Gives the stream up; its queued work still runs. Twice is harmless."""
        self._created = None

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Stream is of its process: it cannot be copied or sent")

    def __repr__(self) -> str:
        if self._created is None:
            return "<forebay.Stream closed>"
        return f"<forebay.Stream {self.handle:#x} device={self.device_id}>"


def register_stream(stream: StreamLike, device: DeviceLike = 0, pool: Optional[Pool] = None) -> None:
    """Promises that a stream lives until :func:`unregister_stream`: what is freed on it then costs no event.

    Parameters
    ----------
    stream : object
        A stream of any library, or its CUstream. A default stream needs no promise.
    device : int or object with ``device_id``
        The stream's device.
    pool : forebay.Pool, optional
        The pool that is told. None: the shared pool.

    Raises
    ------
    TypeError, ValueError
        If it is no stream, or stream 2, the calling thread's default stream, which ends with its thread.
    RuntimeError
        If there is no usable driver, or this is a forked child.

    Notes
    -----
    Any thread. For streams that a program makes and keeps; those of `forebay.Stream` and of PyTorch are registered
    already. A registered stream must not be captured but through what tells Forebay of it, as ``torch.cuda.graph``
    does.
    """
    _core.stream_register(_told(pool), as_device(device, "device"), resolve(stream)[0])


def unregister_stream(stream: StreamLike, device: DeviceLike = 0, pool: Optional[Pool] = None) -> None:
    """Ends the promise of :func:`register_stream`; the stream must still live, and may be destroyed afterwards.

    Raises
    ------
    forebay.NotFoundError
        If it is not registered.
    """
    _core.stream_unregister(_told(pool), as_device(device, "device"), resolve(stream)[0])


def _told(pool: Optional[Pool]) -> int:
    return shared_pool() if pool is None else pool._handle


def synchronize(device_id: int, handle: int) -> None:
    """Waits on the host until the work queued on a stream is done; `device_id` says whose if it is a default one."""
    _core.stream_synchronize(shared_pool(), device_id, handle)


def resolve(stream: StreamLike) -> tuple[int, object]:
    """The CUstream of whatever a caller calls a stream, and what has to be kept so that it lives.

    Raises
    ------
    TypeError
        If it is nothing that is known to be a stream.
    ValueError
        If its handle is no address, or it is closed.
    """
    if stream is None:
        return 0, None
    if isinstance(stream, Stream):
        created = stream._open()
        return created.handle or 0, created
    if isinstance(stream, int) and not isinstance(stream, bool):
        handle, keep = stream, None
    else:
        handle, keep = _foreign(stream), stream
    if not 0 <= handle <= MAX_SIZE:
        raise ValueError(f"stream is {handle}: a stream's handle is from 0 to 2**64 - 1")
    return handle, keep


def _foreign(stream: Any) -> int:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        answer = protocol() if callable(protocol) else protocol
        try:
            version, handle = answer
            version, handle = int(version), int(handle)
        except (TypeError, ValueError):
            raise TypeError(f"__cuda_stream__ of {type(stream).__name__} gives {answer!r}: it must be two integers") from None
        if version != 0:
            raise TypeError(f"__cuda_stream__ of {type(stream).__name__} has version {version}: this package knows version 0")
        return handle
    # PyTorch, CuPy, and then cuda.core and Numba, whose handle is a number or an object with a `value`, None for NULL.
    for name in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, name, None)
        if handle is None:
            continue
        handle = getattr(handle, "value", handle)
        try:
            return int(handle or 0)
        except (TypeError, ValueError):
            break
    raise TypeError(
        f"stream is a {type(stream).__name__}: it must be None, a CUstream as an integer, a forebay.Stream, an object with "
        "__cuda_stream__, or a stream of PyTorch, CuPy, cuda.core or Numba"
    )
