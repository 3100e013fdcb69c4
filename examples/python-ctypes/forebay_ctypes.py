"""A thin ctypes binding to libforebay: one function for each C function, checked, and the two framework hooks.

The library is FOREBAY_LIBRARY, else the release build of this repository, else what the loader finds.
Environment variables named FOREBAY_* are read when the pool is first used: set them before that.
"""

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64
from ctypes import c_void_p

OK, NULL_POINTER, INVALID_ARGUMENT, OUT_OF_MEMORY, BAD_FREE, UNSUPPORTED, NO_DRIVER = range(7)
BAD_DEVICE, DRIVER, CAPTURING, FORKED, NOT_FOUND, BUSY, PANIC = range(7, 14)
FRAMEWORKS = ("c", "torch", "cupy", "numba", "cuda_core")


class ForebayError(RuntimeError):
    """A call failed. `status` is the C status, the text is the library's own."""

    def __init__(self, status: int, text: str):
        super().__init__(f"status {status}: {text}")
        self.status = status


class Stats(Structure):
    """`forebay_pool_stats`, field for field."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        *[(name, c_uint64) for name in (
            "live", "live_peak", "physical", "physical_peak", "limit", "free_bytes", "largest_free", "private_bytes",
            "allocations", "frees", "hits", "misses", "steals", "growths", "waits", "releases", "out_of_memory",
        )],
        ("live_by_framework", c_uint64 * 8),
        ("streams", c_uint64),
        ("driver_calls", c_uint64),
        ("driver_ns", c_uint64),
        ("reserved", c_uint64 * 8),
    ]  # fmt: skip


def library_path() -> str:
    """Where the library is. PyTorch wants the path, and both must open the same file to share one pool."""
    if path := os.environ.get("FOREBAY_LIBRARY"):
        return os.path.abspath(path)
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.normpath(os.path.join(here, "..", "..", "target", "release", "libforebay.so"))
    return built if os.path.exists(built) else "libforebay.so.0.1"


lib = ctypes.CDLL(library_path())


def _check(status: int, _function=None, _arguments=None) -> None:
    if status != OK:
        raise ForebayError(status, lib.forebay_last_error_message().decode())


def _declare(name: str, *arguments, answer=_check) -> None:
    """Without argtypes ctypes would pass a 64-bit pointer as an int and cut it in half."""
    function = getattr(lib, name)
    function.argtypes = arguments
    if answer is _check:
        function.restype, function.errcheck = c_int, _check
    else:
        function.restype = answer


_pool, _device, _pointer, _out = c_void_p, c_int32, c_void_p, POINTER(c_void_p)
_declare("forebay_version", answer=c_char_p)
_declare("forebay_last_error_message", answer=c_char_p)
_declare("forebay_pool_shared", _out)
_declare("forebay_pool_driver_name", _pool, answer=c_char_p)
_declare("forebay_pool_memory_info", _pool, _device, POINTER(c_uint64), POINTER(c_uint64))
_declare("forebay_pool_malloc", _pool, c_uint64, _device, _pointer, _out)
_declare("forebay_pool_free", _pool, _pointer, _pointer)
_declare("forebay_pool_record_use", _pool, _pointer, _pointer)
_declare("forebay_pool_trim", _pool, _device, c_uint64, POINTER(c_uint64))
_declare("forebay_pool_set_limit", _pool, _device, c_uint64)
_declare("forebay_pool_get_stats", _pool, _device, POINTER(Stats))
_declare("forebay_pool_reset_peaks", _pool, _device)
_declare("forebay_pool_report", _pool, _device, c_char_p, c_size_t, POINTER(c_size_t))
_declare("forebay_pool_check", _pool, _device)
_declare("forebay_stream_create", _pool, _device, _out)
_declare("forebay_stream_destroy", _pool, _device, _pointer)
_declare("forebay_stream_synchronize", _pool, _device, _pointer)
_declare("forebay_pool_copy", _pool, _device, _pointer, _pointer, c_uint64, _pointer)
_declare("forebay_pool_fill", _pool, _device, _pointer, c_uint8, c_uint64, _pointer)
_declare("forebay_torch_malloc", c_size_t, c_int, _pointer, answer=c_void_p)
_declare("forebay_torch_free", _pointer, c_size_t, c_int, _pointer, answer=None)
_declare("forebay_torch_reset", answer=None)
_declare("forebay_torch_memory_fraction", c_double, c_int, answer=None)
_declare("forebay_cupy_malloc", _pointer, c_size_t, c_int, answer=c_void_p)
_declare("forebay_cupy_free", _pointer, _pointer, c_int, answer=None)
_declare("forebay_cupy_set_stream_getter", c_void_p, answer=None)


def shared() -> int:
    """THE pool of the process: the one that the framework hooks use."""
    global _shared
    if _shared is None:
        pool = c_void_p()
        lib.forebay_pool_shared(byref(pool))
        _shared = pool.value
    return _shared


_shared = None


def stats(device: int = 0) -> dict:
    """The pool's figures, bytes and counts, with live bytes by framework as a dict."""
    raw = Stats(size=ctypes.sizeof(Stats), version=1)
    lib.forebay_pool_get_stats(shared(), device, byref(raw))
    figures = {name: getattr(raw, name) for name, kind in Stats._fields_ if kind is c_uint64}
    figures["live_by_framework"] = dict(zip(FRAMEWORKS, raw.live_by_framework))
    return figures


def report(device: int = 0) -> str:
    """The pool's own account of itself, as an out-of-memory error quotes it."""
    needed = c_size_t()
    lib.forebay_pool_report(shared(), device, None, 0, byref(needed))
    buffer = ctypes.create_string_buffer(needed.value)
    lib.forebay_pool_report(shared(), device, buffer, needed.value, byref(needed))
    return buffer.value.decode()


def trim(device: int = 0, keep: int = 0) -> int:
    """Gives free memory back to the driver; answers how many bytes."""
    released = c_uint64()
    lib.forebay_pool_trim(shared(), device, keep, byref(released))
    return released.value


def address_of(name: str) -> int:
    """The address of an exported function, as the frameworks' Python classes want it."""
    return ctypes.cast(getattr(lib, name), c_void_p).value


def torch_install():
    """Makes PyTorch allocate from the pool. Call it before the first CUDA use; answers PyTorch's allocator object."""
    import torch

    allocator = torch.cuda.memory.CUDAPluggableAllocator(library_path(), "forebay_torch_malloc", "forebay_torch_free")
    torch.cuda.memory.change_current_allocator(allocator)
    # PyTorch's own class sets none of these, and without them record_stream, empty_cache and graph pools do nothing.
    hooks = allocator.allocator()
    hooks.set_init_fn(address_of("forebay_torch_init"))
    hooks.set_reset_fn(address_of("forebay_torch_reset"))
    hooks.set_memory_fraction_fn(address_of("forebay_torch_memory_fraction"))
    hooks.set_base_alloc_fn(address_of("forebay_torch_base_alloc"))
    hooks.set_record_stream_fn(address_of("forebay_torch_record_stream"))
    hooks.set_begin_allocate_to_pool(address_of("forebay_torch_begin_allocate_to_pool"))
    hooks.set_end_allocate_to_pool_fn(address_of("forebay_torch_end_allocate_to_pool"))
    hooks.set_release_pool(address_of("forebay_torch_release_pool"))
    return allocator


def cupy_install():
    """Makes CuPy allocate from the pool, in the order of CuPy's current stream."""
    import cupy
    from cupy_backends.cuda import stream

    # CuPy does not pass the stream, but exports a C function that knows it, in a capsule named by its own signature.
    capsule = stream.__pyx_capi__["get_stream_ptr"]
    python = ctypes.pythonapi
    python.PyCapsule_GetName.argtypes, python.PyCapsule_GetName.restype = [ctypes.py_object], c_char_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, c_char_p]
    python.PyCapsule_GetPointer.restype = c_void_p
    lib.forebay_cupy_set_stream_getter(python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule)))

    malloc, free = address_of("forebay_cupy_malloc"), address_of("forebay_cupy_free")
    allocator = cupy.cuda.memory.CFunctionAllocator(0, malloc, free, lib)
    cupy.cuda.set_allocator(allocator.malloc)
    return allocator
