"""cuda.core on Forebay: a memory resource on the shared pool, and `install` to make it a device's.

Buffers of this resource are cuda.core's own. Buffers of both libraries interchange: each takes the other's by DLPack,
and `forebay.Buffer.from_handle` and `cuda.core.Buffer.from_handle` take addresses with an owner.
"""

from __future__ import annotations

import inspect
from typing import Any, Optional

from . import _core, pressure
from ._arguments import as_device
from ._frameworks import need, raw, ready
from ._memory._pool_memory_resource import PoolMemoryResource
from ._pool import Pool
from ._set_module import set_module
from ._stream import resolve
from .typing import DeviceLike

__all__ = ["MemoryResource", "install"]

_cuda: Any = need("cuda.core", "cuda.core", "cuda-core[cu13]>=1.2")


def _maker(buffer: Any) -> Any:
    """What makes a buffer of ``(ptr, size, mr, *, stream)``: `from_handle`, or what that calls with the same arguments,
    which spares a tenth of an allocation's time."""
    inner = getattr(buffer, "_init", None)
    try:
        names = list(inspect.signature(inner).parameters) if inner is not None else []
    except (TypeError, ValueError):
        names = []
    return inner if names[:3] == ["ptr", "size", "mr"] and "stream" in names else buffer.from_handle


_from_handle = _maker(_cuda.Buffer)

if "stream" not in inspect.signature(_cuda.Buffer.from_handle).parameters:
    raise ImportError(f"cuda.core is version {_cuda.__version__}, whose buffers keep no stream: install cuda-core>=1.2")


def _handle(stream: Any) -> int:
    """The CUstream of what cuda.core calls a stream."""
    try:
        return stream.__cuda_stream__()[1]  # type: ignore[no-any-return]
    except AttributeError:
        pass
    # A graph's builder stands for the stream that it captures. No plain numbers here: cuda.core does not take them
    # either.
    inner = getattr(stream, "stream", None)
    if not hasattr(inner, "__cuda_stream__"):
        raise TypeError(f"stream is a {type(stream).__name__}: it must be a cuda.core.Stream or GraphBuilder")
    return resolve(inner)[0]


class MemoryResource(_core.CoreBase, _cuda.MemoryResource):  # type: ignore[misc]
    """Memory of a pool of Forebay's as a `cuda.core.MemoryResource`.

    Parameters
    ----------
    device_id : int or cuda.core.Device
        The device, counted from 0.
    pool : forebay.Pool, optional
        None: the shared pool. A pinned pool gives pinned memory of the host.

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
    Any thread may use it. The memory of a buffer stays valid until the buffer is closed or collected, and goes back in
    the order of the stream that is then the buffer's.

    It derives from `cuda.core.MemoryResource
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.MemoryResource.html>`_.
    """

    def __init__(self, device_id: DeviceLike = 0, pool: Optional[Pool] = None) -> None:
        self._given, self._pool, self._device = pool, ready(pool), as_device(device_id)
        self._on_host = PoolMemoryResource(self._device, self._pool).is_host_accessible
        self._connect(raw(self._pool), self._pool._capsule, self._device, self._on_host, _from_handle, _handle)
        if not self._on_host:
            pressure.start(pool)

    @property
    def device_id(self) -> int:
        """The device of the memory; of pinned memory, the one that it is nearest to."""
        return self._device

    @property
    def is_device_accessible(self) -> bool:
        """Whether a device may use the memory: always."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host may use the memory: that of a pinned pool."""
        return self._on_host

    @property
    def is_managed(self) -> bool:
        """Whether the memory is CUDA managed memory: never."""
        return False

    @property
    def pool(self) -> Pool:
        """The pool."""
        return self._pool

    def __repr__(self) -> str:
        return f"<forebay.cuda_core.MemoryResource device_id={self._device}>"


def install(device: Optional[DeviceLike] = None, pool: Optional[Pool] = None) -> MemoryResource:
    """Makes a `MemoryResource` the memory resource of a `cuda.core.Device`. Again with the same pool is harmless.

    Parameters
    ----------
    device : int or cuda.core.Device, optional
        None: the current device.
    pool : forebay.Pool, optional
        None: the shared pool.

    Returns
    -------
    MemoryResource

    Raises
    ------
    RuntimeError
        If there is no usable driver, or this is a forked child; the device is then as it was.

    Notes
    -----
    cuda.core has a `Device` for each thread, so this is for the calling thread: call it in every thread that allocates.
    """
    target = _cuda.Device(None if device is None else as_device(device, "device"))
    made = MemoryResource(target.device_id, pool)
    now = target.memory_resource
    if isinstance(now, MemoryResource) and now._given is pool:
        return now
    target.memory_resource = made
    return made


set_module(globals())
