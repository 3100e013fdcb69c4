"""DLPack: buffers as tensors of others, and others' tensors as buffers.

The tensors are made and read by the library; this module moves them in and out of Python's capsules. What the capsules mean
is in DLPack's "Python Specification for DLPack" and in the array API standard.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_void_p, py_object
from typing import TYPE_CHECKING, Any, Optional

from . import _library
from ._errors import check
from ._stream import LEGACY_DEFAULT, synchronize

if TYPE_CHECKING:
    from ._buffer import Buffer

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
VERSION = (1, 0)

# Capsules keep a pointer to their name: these bytes live as long as the module.
_LEGACY, _VERSIONED = b"dltensor", b"dltensor_versioned"
_USED = {_LEGACY: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}

_python = ctypes.pythonapi


def _of_python(name: str, answer: Any, *arguments: Any) -> Any:
    # A function object of this module's own: others may declare the shared one otherwise.
    function = _python[name]
    function.restype, function.argtypes = answer, arguments
    return function


_capsule_new = _of_python("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
_capsule_is_valid = _of_python("PyCapsule_IsValid", c_int, py_object, c_char_p)
_capsule_pointer = _of_python("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_capsule_rename = _of_python("PyCapsule_SetName", c_int, py_object, c_char_p)


def device_of(buffer: Buffer) -> tuple[int, int]:
    """DLPack's device type and number of a buffer's memory."""
    if buffer.is_managed:
        return CUDA_MANAGED, max(buffer.device_id, 0)
    if not buffer.is_device_accessible:
        return CPU, 0
    return (CUDA_HOST, 0) if buffer.is_host_accessible else (CUDA, buffer.device_id)


def capsule_of(buffer: Buffer, versioned: bool) -> Any:
    """A capsule with a tensor of the buffer; unless it is consumed, the tensor ends with it."""
    out = c_void_p()
    if versioned:
        check(_library.forebay_buffer_to_dlpack(buffer._handle, out))
    else:
        check(_library.forebay_buffer_to_dlpack_legacy(buffer._handle, out))
    destructor = _library.address_of("forebay_dlpack_capsule_delete")
    return _capsule_new(out, _VERSIONED if versioned else _LEGACY, destructor)


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
        queue = buffer._open().stream if stream in (None, -1) else stream
        buffer = buffer.copy_to(stream=queue)
        if on_host and stream != -1:
            synchronize(buffer._open().stream_device, queue)
    return capsule_of(buffer, max_version is not None and max_version[0] >= VERSION[0])


def order(buffer: Buffer, stream: Optional[int], on_host: bool) -> None:
    """Makes the work queued on the buffer's stream precede what a consumer does on `stream`, by waiting where it must."""
    if stream == -1:
        return
    info = buffer._open()
    if not on_host and (stream or LEGACY_DEFAULT) == (info.stream or LEGACY_DEFAULT):
        return
    synchronize(info.stream_device, info.stream)


def take(obj: Any, with_stream: bool, stream: int) -> Optional[int]:
    """The library's buffer of an exporter's, or a capsule's, tensor."""
    capsule = obj if _name_of(obj) else _ask(obj, with_stream, stream)
    name = _name_of(capsule)
    if name is None:
        raise ValueError("the capsule holds no DLPack tensor: it was consumed before, or is another kind of capsule")
    out = c_void_p()
    pointer = _capsule_pointer(capsule, name)
    if name == _VERSIONED:
        check(_library.forebay_buffer_from_dlpack(pointer, stream, out))
    else:
        check(_library.forebay_buffer_from_dlpack_legacy(pointer, stream, out))
    # Only now is the tensor ours; had the call failed, the capsule would still end it.
    _capsule_rename(capsule, _USED[name])
    return out.value


def _name_of(obj: Any) -> Optional[bytes]:
    return next((name for name in (_VERSIONED, _LEGACY) if _capsule_is_valid(obj, name)), None)


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
