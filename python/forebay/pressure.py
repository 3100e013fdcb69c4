"""What Python and other allocators hold is asked for before an allocation fails.

The first plug-in that is installed starts this for its pool. When a request would fail for want of memory, garbage is
collected, and then the caches of frameworks that allocate for themselves are emptied: PyTorch's, where its own
allocator is in use, and CuPy's default pool. Neither is imported for that.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
import threading
from typing import Any, Callable, Optional

from . import _core
from ._arguments import as_device, as_size
from ._errors import ForebayError
from ._pool import Pool
from ._set_module import set_module
from .typing import DeviceLike, SizeLike

__all__ = ["relieve", "start", "stop"]

_log = logging.getLogger(__name__)

#: How long a thread waits for another one that is asking already, in seconds. It could be waiting for this very thread.
_PATIENCE = 10.0

_busy = threading.Lock()
_guard = threading.Lock()
# By the library's handle of the pool: the pool and the number of its callback.
_started: dict[int, tuple[Pool, int]] = {}


def start(pool: Optional[Pool] = None) -> None:
    """Lets a pool ask before it fails. Again is harmless.

    Parameters
    ----------
    pool : Pool, optional
        None: the shared pool.
    """
    with _guard:
        key = 0 if pool is None else pool._handle or 0
        if key in _started:
            return
        given = Pool.shared() if pool is None else pool

        def called(device: int, size: int) -> bool:
            try:
                return relieve(device, size, given)
            except Exception:
                # The request fails for want of memory, and says so: that this failed too helps nobody to see why.
                _log.exception("memory could not be asked for")
                return False

        _started[key] = given, _core.pool_add_pressure_callback(given._handle, called)


def stop() -> None:
    """No pool asks any more. Runs at the interpreter's end too, after which no Python may be called."""
    with _guard:
        for pool, number in _started.values():
            with contextlib.suppress(ForebayError):  # in a forked child nobody is asked
                _core.pool_remove_pressure_callback(pool._handle, number)
        _started.clear()


atexit.register(stop)


def _renew_locks() -> None:
    """A child of ``fork`` has no thread that would let go of them, and takes one at its end."""
    global _busy, _guard
    _busy, _guard = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


def relieve(device_id: DeviceLike, size: SizeLike, pool: Optional[Pool] = None) -> bool:
    """Asks for memory of a device; says whether any came.

    Parameters
    ----------
    device_id : int, str or device
        The device.
    size : int or str
        Bytes that are wanted: with a limit that they would pass, only garbage can help.
    pool : Pool, optional
        None: the shared pool.
    """
    if not _busy.acquire(timeout=_PATIENCE):
        return False
    try:
        device_id, size = as_device(device_id), as_size(size)
        source = Pool.shared() if pool is None else pool
        before = source.stats(device_id)
        gc.collect()
        after = source.stats(device_id)
        helped = after.live < before.live or after.frees > before.frees
        beyond = after.limit and after.physical + size > after.limit
        if not beyond and not (helped and after.free_bytes >= size):
            for empty in (_empty_torch, _empty_cupy):
                helped = _asked(empty, device_id) or helped
        return helped
    finally:
        _busy.release()


def _asked(empty: Callable[[int], bool], device_id: int) -> bool:
    try:
        return empty(device_id)
    except Exception as error:  # whatever a framework raises, as while it captures a graph
        _log.debug("%s: %s", empty.__name__, error)
        return False


def _empty_torch(device_id: int) -> bool:
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    # Any other one is a plug-in: this one, which is asking, or a stranger that has no cache to empty.
    if cuda.memory.get_allocator_backend() not in ("native", "cudaMallocAsync"):
        return False
    before = cuda.memory_reserved(device_id)
    if before == 0:
        return False
    cuda.empty_cache()
    return bool(cuda.memory_reserved(device_id) < before)


def _empty_cupy(device_id: int) -> bool:
    cupy: Any = sys.modules.get("cupy")
    if cupy is None or not hasattr(cupy, "get_default_memory_pool"):
        return False
    pool = cupy.get_default_memory_pool()
    with cupy.cuda.Device(device_id):
        before = pool.total_bytes()
        if before == 0:
            return False
        pool.free_all_blocks()
        return bool(pool.total_bytes() < before)


set_module(globals())
