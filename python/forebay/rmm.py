"""RMM on Forebay: a device memory resource on the shared pool, for cuDF and all else of RAPIDS that allocates through
RMM.

RMM calls the resource through Python, with the interpreter's lock: 1 to 2 µs for an allocation and its free.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, Optional

from . import _core, pressure
from ._arguments import as_device
from ._errors import Status, failure
from ._frameworks import need, raw, ready
from ._pool import Pool
from ._set_module import set_module
from .typing import DeviceLike

__all__ = ["MemoryResource", "install"]

_mr: Any = need("rmm.mr", "RMM", "rmm-cu13")

_log = logging.getLogger(__name__)

_guard = threading.Lock()
# By device and the library's object for a pool; 0: the shared one.
_installed: dict[tuple[int, int], MemoryResource] = {}


def _functions(pool: Pool, device: int) -> tuple[Callable[[int, Any], int], Callable[[int, int, Any], None]]:
    """What RMM calls. Both are called at the interpreter's end, too, when modules are empty: they carry what they
    need."""
    handle, framework = raw(pool), _core.FRAMEWORK_RMM

    def allocate(size: int, stream: Any, malloc: Any = _core.malloc, keep: Pool = pool) -> int:
        return malloc(handle, framework, size, device, stream.__cuda_stream__()[1])  # type: ignore[no-any-return]

    def deallocate(
        ptr: int,
        size: int,
        stream: Any,
        free: Any = _core.free,
        failure: Any = failure,
        log: Any = _log,
        forked: int = Status.FORKED,
    ) -> None:
        status = free(handle, ptr, stream.__cuda_stream__()[1])
        # In a forked child the memory is the parent's.
        if status and status != forked:
            # RMM's own callers cannot be told: for C++ a deallocation does not fail.
            log.error("%d bytes at %#x could not be given back: %s", size, ptr, failure(status))

    return allocate, deallocate


class MemoryResource(_mr.CallbackMemoryResource):  # type: ignore[misc]
    """Memory of a pool of Forebay's as a resource of RMM's, alone or below RMM's adaptors.

    Parameters
    ----------
    device : int
        The device, counted from 0. RMM uses a resource while its device is the current one.
    pool : forebay.Pool, optional
        None: the shared pool.

    Raises
    ------
    ValueError
        If there is no such device.
    TypeError
        If `pool` is no Pool.
    RuntimeError
        If there is no usable driver, or this is a forked child.

    Notes
    -----
    Any thread may use it. Memory is given and taken back in the order of the stream that RMM names; a stream that
    blocks are freed on must be alive then, as RMM asks for itself. `allocate` raises MemoryError, with the pool's
    report; C++ code gets `rmm::out_of_memory`. What is given back and is not live is told to the log ``forebay.rmm``,
    and changes nothing. Buffers do not keep the resource's functions: it must live as long as they do, as every
    `CallbackMemoryResource`. What `install` made does.

    It derives from `rmm.mr.CallbackMemoryResource <https://docs.rapids.ai/api/rmm/stable/python_api/mr/>`_.
    """

    def __init__(self, device: DeviceLike = 0, pool: Optional[Pool] = None) -> None:
        self._pool, self._device = ready(pool), as_device(device, "device")
        if not 0 <= self._device < self._pool.device_count:
            raise ValueError(f"device is {self._device}: there are {self._pool.device_count}, counted from 0")
        super().__init__(*_functions(self._pool, self._device))
        pressure.start(pool)

    @property
    def device_id(self) -> int:
        """The device of the memory."""
        return self._device

    @property
    def pool(self) -> Pool:
        """The pool."""
        return self._pool

    def __repr__(self) -> str:
        return f"<forebay.rmm.MemoryResource device_id={self._device}>"


def install(device: Optional[DeviceLike] = None, pool: Optional[Pool] = None) -> MemoryResource:
    """Makes a `MemoryResource` RMM's resource of a device. Again with the same pool gives the same one.

    Parameters
    ----------
    device : int, optional
        None: the current device. With several devices, call it for each.
    pool : forebay.Pool, optional
        None: the shared pool.

    Returns
    -------
    MemoryResource

    Raises
    ------
    ValueError
        If there is no such device.
    RuntimeError
        If there is no usable driver, or this is a forked child; RMM is then as it was.

    Notes
    -----
    Memory that RMM gave out before goes back to where it came from, as long as that resource lives. Libraries that set
    a resource when they are imported, or `rmm.reinitialize`, take its place: call this after them.
    """
    if device is None:
        from rmm._cuda.gpu import getDevice

        device = getDevice()
    key = as_device(device, "device"), 0 if pool is None else raw(pool)
    with _guard:
        made = _installed.get(key)
        if made is None:
            made = MemoryResource(device, pool)
            # C++ code keeps copies of a resource, to the end of the process, that do not keep the Python functions
            # behind it.
            _core.keep_for_good(made)
            _installed[key] = made
        _mr.set_per_device_resource(made.device_id, made)
    return made


set_module(globals())
