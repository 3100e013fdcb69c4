"""The shared library: where it is, and every function of its C ABI with its C types.

One name here is one function of ``include/forebay.h``. The library is opened when the package is imported; a function that
an older library lacks is found out when it is called, with an error that names both.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, Callable

from . import _structs as s

Function = Callable[..., Any]


class LibraryError(RuntimeError):
    """The shared library is older than this package: a function that was called is not in it."""


def find_library() -> str:
    """The path of ``libforebay.so`` that this package uses.

    In this order: the variable ``FOREBAY_LIBRARY``, the library inside the package, the release build of a source checkout.
    Frameworks that are told to allocate through Forebay must open the same file, or they would have a pool of their own.

    Raises
    ------
    ImportError
        If there is no library in any of these places.
    """
    if named := os.environ.get("FOREBAY_LIBRARY"):
        return os.path.abspath(named)
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    places = [os.path.join(here, "libforebay.so")]
    if os.path.exists(os.path.join(root, "Cargo.toml")):
        places.append(os.path.join(root, "target", "release", "libforebay.so"))
    for place in places:
        if os.path.exists(place):
            return place
    raise ImportError(
        f"libforebay.so is not at {' nor at '.join(places)}: install the package with `pip install .`, build the library "
        "with `cargo build --release`, or name it in the variable FOREBAY_LIBRARY"
    )


path: str = find_library()
try:
    # CDLL and not PyDLL, also for the two hot calls: each may wait for a stream or for memory, and what it waits for may need
    # another thread of this interpreter.
    _opened = ctypes.CDLL(path)
except OSError as error:
    raise ImportError(f"{path} cannot be opened: {error}") from error
if not hasattr(_opened, "forebay_version"):
    raise ImportError(f"{path} is not Forebay's library: it has no forebay_version")

#: Every function declared below: name to (result, arguments). ``tests/python/test_header.py`` compares it with the header.
declared: dict[str, tuple[Any, tuple[Any, ...]]] = {}


def _function(name: str, *arguments: Any, answer: Any = c_uint32) -> Function:
    declared[name] = (answer, arguments)
    try:
        function = _opened[name]
    except AttributeError:
        return _missing(name)
    function.argtypes, function.restype = arguments, answer
    return function


def _missing(name: str) -> Function:
    def call(*_: object) -> None:
        raise LibraryError(
            f"libforebay.so at {path} lacks {name}: it is version {version()}, older than this package. Rebuild it with "
            "`cargo build --release`, or let FOREBAY_LIBRARY name a newer one"
        )

    return call


def address_of(name: str) -> int:
    """The address of an exported function, for C code that wants to call it without Python."""
    try:
        return ctypes.cast(getattr(_opened, name), c_void_p).value or 0
    except AttributeError:
        return int(_missing(name)())


def version() -> str:
    """The version of the library in use, e.g. ``"0.1.0"``."""
    return str(forebay_version().decode())


_object, _pointer, _stream, _device = c_void_p, c_void_p, c_void_p, c_int32
_out, _u64 = POINTER(c_void_p), POINTER(c_uint64)
_release = c_void_p  # a forebay_release_fn, by address
_uuid = c_char_p  # 16 bytes that are read
_uuid_out = POINTER(c_uint8 * 16)

forebay_version = _function("forebay_version", answer=c_char_p)
forebay_last_error_message = _function("forebay_last_error_message", answer=c_char_p)
forebay_status_text = _function("forebay_status_text", c_uint32, answer=c_char_p)

forebay_log_set_callback = _function("forebay_log_set_callback", c_void_p, c_void_p, c_uint32)

# ---- pools
forebay_pool_options_init = _function("forebay_pool_options_init", POINTER(s.Options))
forebay_pool_shared = _function("forebay_pool_shared", _out)
forebay_pool_create = _function("forebay_pool_create", POINTER(s.Options), _out)
forebay_pool_destroy = _function("forebay_pool_destroy", _object, answer=None)
forebay_pool_driver_name = _function("forebay_pool_driver_name", _object, answer=c_char_p)
forebay_pool_device_count = _function("forebay_pool_device_count", _object, POINTER(c_int32))
forebay_pool_memory_info = _function("forebay_pool_memory_info", _object, _device, _u64, _u64)
forebay_pool_trim = _function("forebay_pool_trim", _object, _device, c_uint64, _u64)
forebay_pool_release_captures = _function("forebay_pool_release_captures", _object, _device, _u64)
forebay_pool_set_limit = _function("forebay_pool_set_limit", _object, _device, c_uint64)
forebay_pool_get_limit = _function("forebay_pool_get_limit", _object, _device, _u64)
forebay_pool_get_stats = _function("forebay_pool_get_stats", _object, _device, POINTER(s.Stats))
forebay_pool_reset_peaks = _function("forebay_pool_reset_peaks", _object, _device)
forebay_pool_report = _function("forebay_pool_report", _object, _device, c_void_p, c_size_t, POINTER(c_size_t))
forebay_pool_check = _function("forebay_pool_check", _object, _device)
forebay_pool_add_pressure_callback = _function("forebay_pool_add_pressure_callback", _object, c_void_p, c_void_p, _u64)
forebay_pool_remove_pressure_callback = _function("forebay_pool_remove_pressure_callback", _object, c_uint64)

# ---- blocks. The output of the two that are called often as a bare address: a `byref` made once is passed on as it is.
forebay_pool_malloc_for = _function("forebay_pool_malloc_for", _object, c_uint32, c_uint64, _device, _stream, c_void_p)
forebay_pool_malloc_ready = _function("forebay_pool_malloc_ready", _object, c_uint64, _device, _stream, c_void_p)
forebay_pool_free = _function("forebay_pool_free", _object, _pointer, _stream)
forebay_pool_free_after_all = _function("forebay_pool_free_after_all", _object, _pointer)
forebay_pool_host_register = _function("forebay_pool_host_register", _object, _device, _pointer, c_uint64, c_uint32, c_uint32)
forebay_pool_host_unregister = _function("forebay_pool_host_unregister", _object, _device, _pointer)
forebay_pool_base_address = _function("forebay_pool_base_address", _object, _pointer, _out, _u64)

forebay_pool_snapshot = _function("forebay_pool_snapshot", _object, _device, c_void_p, c_void_p)

# ---- PyTorch
forebay_torch_hold_pool = _function("forebay_torch_hold_pool", _device, c_uint64, c_uint64)
forebay_torch_release_pool = _function("forebay_torch_release_pool", _device, c_uint64, c_uint64, answer=None)

# ---- streams
forebay_stream_create = _function("forebay_stream_create", _object, _device, _out)
forebay_stream_destroy = _function("forebay_stream_destroy", _object, _device, _stream)
forebay_stream_register = _function("forebay_stream_register", _object, _device, _stream)
forebay_stream_unregister = _function("forebay_stream_unregister", _object, _device, _stream)
forebay_stream_synchronize = _function("forebay_stream_synchronize", _object, _device, _stream)

# ---- resources
forebay_device_resource_options_init = _function("forebay_device_resource_options_init", POINTER(s.DeviceOptions))
forebay_device_resource_create = _function("forebay_device_resource_create", _device, POINTER(s.DeviceOptions), _out)
forebay_pinned_resource_options_init = _function("forebay_pinned_resource_options_init", POINTER(s.PinnedOptions))
forebay_pinned_resource_create = _function("forebay_pinned_resource_create", POINTER(s.PinnedOptions), _out)
forebay_managed_resource_options_init = _function("forebay_managed_resource_options_init", POINTER(s.ManagedOptions))
forebay_managed_resource_create = _function("forebay_managed_resource_create", POINTER(s.ManagedOptions), _out)
forebay_virtual_resource_options_init = _function("forebay_virtual_resource_options_init", POINTER(s.VirtualOptions))
forebay_virtual_resource_create = _function("forebay_virtual_resource_create", _device, POINTER(s.VirtualOptions), _out)
forebay_host_resource_options_init = _function("forebay_host_resource_options_init", POINTER(s.HostOptions))
forebay_host_resource_create = _function("forebay_host_resource_create", POINTER(s.HostOptions), _out)
forebay_pool_resource_create = _function("forebay_pool_resource_create", _object, _device, _out)
forebay_resource_destroy = _function("forebay_resource_destroy", _object, answer=None)
forebay_resource_close = _function("forebay_resource_close", _object)
# The output as a bare address: a `byref` made once is then passed on without a look at its type.
forebay_resource_allocate = _function("forebay_resource_allocate", _object, c_uint64, _stream, c_void_p)
forebay_resource_allocate_pointer = _function("forebay_resource_allocate_pointer", _object, c_uint64, _stream, _out)
forebay_resource_deallocate = _function("forebay_resource_deallocate", _object, _pointer, c_uint64, _stream)
forebay_resource_deallocate_pointer = _function("forebay_resource_deallocate_pointer", _object, _pointer)
forebay_resource_get_info = _function("forebay_resource_get_info", _object, POINTER(s.ResourceInfo))
forebay_resource_get_attribute = _function("forebay_resource_get_attribute", _object, c_uint32, _u64)
forebay_resource_set_attribute = _function("forebay_resource_set_attribute", _object, c_uint32, c_uint64)
forebay_resource_get_peer_access = _function("forebay_resource_get_peer_access", _object, _device, POINTER(c_uint32))
forebay_resource_set_peer_access = _function("forebay_resource_set_peer_access", _object, _device, c_uint32)
forebay_resource_trim = _function("forebay_resource_trim", _object, c_uint64)
forebay_resource_modify_allocation = _function(
    "forebay_resource_modify_allocation", _object, _object, c_uint64, POINTER(s.VirtualOptions), _stream
)
forebay_resource_get_allocation_handle = _function(
    "forebay_resource_get_allocation_handle", _object, POINTER(c_int32), _uuid_out
)
forebay_resource_from_allocation_handle = _function(
    "forebay_resource_from_allocation_handle", c_uint32, _device, c_int32, _uuid, _out
)
forebay_resource_register = _function("forebay_resource_register", _object, _uuid, _out)
forebay_resource_from_registry = _function("forebay_resource_from_registry", _uuid, _out)

# ---- buffers
forebay_buffer_from_handle = _function(
    "forebay_buffer_from_handle", _pointer, c_uint64, _object, _release, c_void_p, _stream, _out
)
forebay_buffer_destroy = _function("forebay_buffer_destroy", _object, answer=None)
forebay_buffer_close = _function("forebay_buffer_close", _object)
forebay_buffer_close_on = _function("forebay_buffer_close_on", _object, _stream)
forebay_buffer_get_info = _function("forebay_buffer_get_info", _object, POINTER(s.BufferInfo))
forebay_buffer_get_resource = _function("forebay_buffer_get_resource", _object, _out)
forebay_buffer_copy = _function("forebay_buffer_copy", _object, _object, _stream)
forebay_buffer_clone = _function("forebay_buffer_clone", _object, _stream, _out)
forebay_buffer_fill = _function("forebay_buffer_fill", _object, c_uint32, c_uint32, _stream)
forebay_buffer_to_dlpack = _function("forebay_buffer_to_dlpack", _object, _out)
forebay_buffer_to_dlpack_legacy = _function("forebay_buffer_to_dlpack_legacy", _object, _out)
forebay_buffer_from_dlpack = _function("forebay_buffer_from_dlpack", _pointer, _stream, _out)
forebay_buffer_from_dlpack_legacy = _function("forebay_buffer_from_dlpack_legacy", _pointer, _stream, _out)

# ---- between processes
forebay_ipc_serve = _function("forebay_ipc_serve")
forebay_buffer_get_ipc_descriptor = _function("forebay_buffer_get_ipc_descriptor", _object, POINTER(s.IpcDescriptor))
forebay_buffer_from_ipc_descriptor = _function(
    "forebay_buffer_from_ipc_descriptor", _object, POINTER(s.IpcDescriptor), c_uint64, _stream, _out
)
forebay_ipc_descriptor_size = _function("forebay_ipc_descriptor_size", POINTER(s.IpcDescriptor), c_uint64, _u64)
forebay_ipc_export = _function("forebay_ipc_export", _object, _pointer, POINTER(s.IpcDescriptor))
forebay_ipc_export_foreign = _function("forebay_ipc_export_foreign", _pointer, c_uint64, POINTER(s.IpcDescriptor))

# ---- CuPy: the hooks themselves are taken by address
forebay_cupy_set_stream_getter = _function("forebay_cupy_set_stream_getter", c_void_p, answer=None)
forebay_cupy_set_memory_hooks = _function("forebay_cupy_set_memory_hooks", c_void_p, c_void_p, answer=None)
forebay_cupy_pool_create = _function("forebay_cupy_pool_create", _object, c_uint32, _out)
forebay_cupy_pool_set_limit = _function("forebay_cupy_pool_set_limit", _object, _device, c_uint64)
forebay_cupy_pool_get_limit = _function("forebay_cupy_pool_get_limit", _object, _device, _u64)
