"""The C functions of CuPy's own that the library calls, and CuPy's memory hooks."""

from __future__ import annotations

import atexit
from typing import Any, Optional

from .. import _core
from .._arguments import as_size
from .._frameworks import need
from ..typing import SizeLike

cupy: Any = need("cupy", "CuPy", "cupy-cuda13x")
memory: Any = need("cupy.cuda.memory", "CuPy", "cupy-cuda13x")
memory_hook: Any = need("cupy.cuda.memory_hook", "CuPy", "cupy-cuda13x")
_stream: Any = need("cupy_backends.cuda.stream", "CuPy", "cupy-cuda13x")

#: The number of CuPy's current device.
device_of_now: Any = need("cupy.cuda.device", "CuPy", "cupy-cuda13x").get_device_id

#: CuPy's pools count in these, and so do Forebay's.
UNIT = 512

_BEFORE_MALLOC, _AFTER_MALLOC, _BEFORE_FREE = 0, 1, 2
_connected = False


def connect() -> None:
    """Lets the library ask CuPy for its current stream, and call CuPy's memory hooks. Again is harmless.

    Raises
    ------
    RuntimeError
        If this CuPy does not have the functions.
    """
    global _connected
    if _connected:
        return
    getter = _c_function(_stream, "get_stream_ptr", "intptr_t (int)")
    hooks = _c_function(memory_hook, "get_memory_hooks", "PyObject *(int __pyx_skip_dispatch)")
    _core.cupy_set_stream_getter(getter)
    _core.cupy_set_memory_hooks(hooks, _tell)
    # Arrays are freed until the very end, when no Python may be called any more.
    atexit.register(_core.cupy_set_memory_hooks, 0, None)
    _connected = True


def _c_function(module: Any, name: str, signature: str) -> int:
    """The address of a function that a Cython module exports, in a capsule named by its signature."""
    try:
        return _core.capsule_pointer(module.__pyx_capi__[name], signature)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RuntimeError(
            f"CuPy {cupy.__version__} exports no {name} of type {signature} ({error}): this version of CuPy is not "
            "known to Forebay; it is tried with 14.2"
        ) from None


def _tell(event: int, device: int, size: int, address: int, grown: int) -> bool:
    """Calls the thread's memory hooks as CuPy's own pools do; says whether there are any.

    The id of the memory is its address: hooks use it to match a free with its malloc. Only the pool knows whether it
    grows, so the hooks around growth are called after it, with its bytes.
    """
    hooks = memory_hook.get_memory_hooks()
    if not hooks:
        return False
    block = -(-size // UNIT) * UNIT
    for hook in list(hooks.values()):
        if event == _BEFORE_MALLOC:
            hook.malloc_preprocess(device_id=device, size=size, mem_size=block)
        elif event == _AFTER_MALLOC:
            if grown:
                hook.alloc_preprocess(device_id=device, mem_size=grown)
                hook.alloc_postprocess(device_id=device, mem_size=grown, mem_ptr=address)
            hook.malloc_postprocess(device_id=device, size=size, mem_size=block, mem_ptr=address, pmem_id=address)
        else:
            call = hook.free_preprocess if event == _BEFORE_FREE else hook.free_postprocess
            call(device_id=device, mem_size=block, mem_ptr=address, pmem_id=address)
    return True


def limit_of(size: Optional[SizeLike], fraction: Optional[float], total: int) -> int:
    """The limit in bytes that CuPy's ``set_limit`` means; 0 for none.

    Raises
    ------
    ValueError
        For both at once, a negative size, or a fraction outside of 0 to 1.
    OverflowError
        For a size from 2**64 on, as in CuPy.
    """
    if size is not None and fraction is not None:
        raise ValueError(f"size is {size} and fraction is {fraction}: give one of them")
    if fraction is not None:
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction is {fraction}: it is from 0 to 1")
        return int(fraction * total)
    if size is None:
        return 0
    if isinstance(size, int) and size >= 1 << 64:
        raise OverflowError(f"size is {size}: a limit is at most 2**64 - 1 bytes; 0 is none")
    return as_size(size)
