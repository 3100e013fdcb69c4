"""DLPack: buffers as tensors of others, and others' tensors as buffers.

The tensors are made and read by the library, in Python's capsules. What the capsules mean is in DLPack's "Python
Specification for DLPack" and in the array API standard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .. import _core
from .._stream import LEGACY_DEFAULT, synchronize

if TYPE_CHECKING:
    from ._buffer import Buffer

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
VERSION = (1, 0)


def device_of(buffer: Buffer) -> tuple[int, int]:
    """DLPack's device type and number of a buffer's memory."""
    if buffer.is_managed:
        return CUDA_MANAGED, max(buffer.device_id, 0)
    if not buffer.is_device_accessible:
        return CPU, 0
    return (CUDA_HOST, 0) if buffer.is_host_accessible else (CUDA, buffer.device_id)


def give(
    buffer: Buffer,
    stream: Optional[int],
    max_version: Optional[tuple[int, int]],
    dl_device: Optional[tuple[int, int]],
    copy: Optional[bool],
) -> Any:
    """`Buffer.__dlpack__`."""
    device = device_of(buffer)
    if dl_device is not None and tuple(map(int, dl_device)) != device:
        raise BufferError(f"dl_device is {tuple(dl_device)}: the memory is on device {device}, and is given only there")
    if stream == 0:
        raise BufferError("stream is 0: say 1 for the legacy default stream, 2 for the thread's own, None for neither")
    on_host = device[0] != CUDA
    order(buffer, stream, on_host)
    if copy:
        queue = buffer._open().stream if stream is None or stream == -1 else stream
        buffer = buffer.copy_to(stream=queue)
        if on_host and stream != -1:
            synchronize(buffer._open().stream_device, queue)
    return _core.buffer_to_dlpack(buffer._handle, max_version is not None and max_version[0] >= VERSION[0])


def order(buffer: Buffer, stream: Optional[int], on_host: bool) -> None:
    """Makes the work queued on the buffer's stream precede what a consumer does on `stream`, by waiting where it
    must."""
    if stream == -1:
        return
    info = buffer._open()
    if not on_host and (stream or LEGACY_DEFAULT) == (info.stream or LEGACY_DEFAULT):
        return
    synchronize(info.stream_device, info.stream)


def take(obj: Any, with_stream: bool, stream: int) -> int:
    """The library's buffer of an exporter's, or a capsule's, tensor."""
    capsule = obj if _core.is_dlpack(obj) else _ask(obj, with_stream, stream)
    return _core.buffer_from_dlpack(capsule, stream)


def _ask(obj: Any, with_stream: bool, stream: int) -> Any:
    export = getattr(obj, "__dlpack__", None)
    if export is None:
        if type(obj).__name__ == "PyCapsule":
            return obj
        raise TypeError(f"{type(obj).__name__} has no __dlpack__ and is no DLPack capsule")
    words: dict[str, Any] = {}
    # Exporters of host memory take no stream, and 0 is not among the numbers of the array API.
    if with_stream and obj.__dlpack_device__()[0] in (CUDA, CUDA_MANAGED):
        words["stream"] = stream or LEGACY_DEFAULT
    try:
        return export(max_version=VERSION, **words)
    except TypeError:  # an exporter older than DLPack 1.0
        return export(**words)
