"""CuPy on the driver's stream-ordered pools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

from .. import _core
from .._arguments import MAX_SIZE
from .._memory._device_memory_resource import DeviceMemoryResource
from .._pool import Pool
from .._stream import resolve, synchronize
from ..typing import SizeLike, StreamLike
from ._connect import connect, cupy, device_of_now, limit_of, memory

# The resource of a device and a driver pool, and the library's object for the driver pools of all devices. CuPy's
# memory keeps no reference to its allocator, so these live as long as the process. One resource for a driver pool: it
# has one limit.
_resources: dict[tuple[int, int], DeviceMemoryResource] = {}
_pools: dict[tuple[int, ...], int] = {}


class MemoryAsyncPool:
    """What `cupy.cuda.MemoryAsyncPool` is: CuPy's memory from the driver's pools, one for each device.

    Parameters
    ----------
    pool_handles : str, int or list
        ``"current"``: each device's current pool. ``"default"``: its default one. An integer: a ``cudaMemPool_t``. A
        list of these, one for each device.

    Raises
    ------
    ValueError
        For another word, or a list that is not as long as there are devices.
    TypeError
        For anything else.
    NotImplementedError
        If a device has no such pools.

    Notes
    -----
    Memory is allocated in the order of CuPy's current stream, and freed in that of the stream which is current then;
    where that is not the stream of the allocation, which may be gone, it waits for everything that the device has.
    Memory hooks are called. A failed allocation raises `cupy.cuda.memory.OutOfMemoryError`, after others were asked to
    give back. Two pools are equal only if they are the same object, and have no order, as CuPy's. As CuPy's class does,
    this makes a pool keep what is freed: where nobody has set the ``release_threshold``, it gets its highest value.

    The members are those of `cupy.cuda.MemoryAsyncPool
    <https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.MemoryAsyncPool.html>`_.
    """

    def __init__(self, pool_handles: Union[str, int, Sequence[Union[str, int]]] = "current") -> None:
        count = Pool.shared().device_count
        if isinstance(pool_handles, Sequence) and not isinstance(pool_handles, str):
            handles = list(pool_handles)
            if len(handles) != count:
                raise ValueError(f"pool_handles has {len(handles)} entries, and there are {count} devices: give one for each")
        else:
            handles = [pool_handles] * count
        connect()
        self._resources = [_resource(device, handle) for device, handle in enumerate(handles)]
        self._param = _param(self._resources)
        hooks = _core.address_of("forebay_cupy_pool_malloc"), _core.address_of("forebay_cupy_pool_free")
        self._malloc: Callable[[int], Any] = memory.CFunctionAllocator(self._param, *hooks, None).malloc
        if type(self).malloc is MemoryAsyncPool.malloc:
            # The method of CuPy's own object: nothing of Python stands between an array and the pool.
            self.__dict__["malloc"] = self._malloc
        limit = os.environ.get("CUPY_GPU_MEMORY_LIMIT")
        if limit is not None:
            for device in range(count):
                self._set_limit(device, *_read(limit))

    def malloc(self, size: int) -> Any:
        """Allocates on the current device, in the order of the current stream: for `cupy.cuda.set_allocator`.

        Parameters
        ----------
        size : int
            Bytes. The pool gives them rounded up to 512.

        Returns
        -------
        cupy.cuda.MemoryPointer
        """
        return self._malloc(size)

    def free_all_blocks(self, stream: StreamLike = None) -> None:
        """Waits for a stream, and gives the pool's free memory back to the system.

        Parameters
        ----------
        stream : stream, optional
            CuPy's, or any that Forebay takes. What was freed while it was current is free then. None: the current one.
        """
        if stream is None:
            stream = cupy.cuda.get_current_stream()
        synchronize(int(device_of_now()), resolve(stream)[0])
        self._now().trim(0)

    def n_free_blocks(self) -> int:
        """Not known: the driver does not say how its free memory is cut.

        Raises
        ------
        NotImplementedError
            Always, as CuPy's own.
        """
        raise NotImplementedError(
            "n_free_blocks is not supported in MemoryAsyncPool: free_bytes() says how much memory is free"
        )

    def used_bytes(self) -> int:
        """Bytes in use, by whomever."""
        return int(self._now().attributes.used_mem_current)

    def free_bytes(self) -> int:
        """Bytes held and not in use."""
        attributes = self._now().attributes
        return max(int(attributes.reserved_mem_current) - int(attributes.used_mem_current), 0)

    def total_bytes(self) -> int:
        """Bytes held."""
        return int(self._now().attributes.reserved_mem_current)

    def set_limit(self, size: Optional[SizeLike] = None, fraction: Optional[float] = None) -> None:
        """Sets the most bytes in use: as a number, or as a share of the device's memory. Neither, or 0: no limit.

        Raises
        ------
        ValueError
            For both at once, or a number out of range.
        OverflowError
            For a size from 2**64 on, as in CuPy.

        Notes
        -----
        Of the current device; allocations beyond it are refused. (CuPy's own class writes the release threshold
        instead, which refuses nothing.) The variable ``CUPY_GPU_MEMORY_LIMIT`` sets it for all devices when a pool is
        made.
        """
        self._set_limit(device_of_now(), size, fraction)

    def get_limit(self) -> int:
        """The most bytes in use; 2**64 - 1, as CuPy's class has it: no limit."""
        return _core.cupy_pool_get_limit(self._param, device_of_now()) or 2**64 - 1

    def _now(self) -> DeviceMemoryResource:
        return self._resources[int(device_of_now())]

    def _set_limit(self, device: int, size: Optional[SizeLike], fraction: Optional[float]) -> None:
        total = Pool.shared().memory_info(device)[1] if fraction is not None else 0
        _core.cupy_pool_set_limit(self._param, device, limit_of(size, fraction, total))

    def __repr__(self) -> str:
        return f"<forebay.cupy.MemoryAsyncPool {[hex(resource.handle) for resource in self._resources]}>"


def _resource(device: int, pool: Union[str, int]) -> DeviceMemoryResource:
    resource = DeviceMemoryResource.from_pool(device, pool)
    key = device, resource.handle
    if key not in _resources:
        if resource.attributes.release_threshold == 0:
            # Else the driver takes idle memory away at every synchronisation, and each allocation after it maps anew.
            resource.attributes.release_threshold = MAX_SIZE
        _resources[key] = resource
    return _resources[key]


def _param(resources: list[DeviceMemoryResource]) -> int:
    """The library's object of the pools of all devices."""
    key = tuple(resource.handle for resource in resources)
    if key not in _pools:
        _pools[key] = _core.cupy_pool_create([resource._own for resource in resources])
    return _pools[key]


def _read(limit: str) -> tuple[Optional[int], Optional[float]]:
    """``CUPY_GPU_MEMORY_LIMIT``: bytes, or a share with a percent sign."""
    try:
        return (None, float(limit[:-1]) / 100) if limit.endswith("%") else (int(limit), None)
    except ValueError:
        raise ValueError(f"CUPY_GPU_MEMORY_LIMIT is {limit!r}: it must be a number of bytes, or a share as 50%") from None
