"""The memory manager."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from ctypes import c_void_p
from typing import Any

from .. import _core, pressure
from .._errors import ForebayError, Status, failure
from .._frameworks import pinned_pool
from .._memory._host_memory_resource import HostMemoryResource
from .._pool import Pool, shared_pool
from ._books import Books, Piece
from ._connect import cuda, driver
from ._ipc import ForebayIpcHandle

#: What a late finalizer may be told: the driver is gone, or its context was reset and the memory with it.
_GONE = (Status.NO_DRIVER, Status.DRIVER, Status.FORKED)


class _MappedMemory(driver.MappedMemory):  # type: ignore[misc]
    """Mapped memory that has one address for the host and every device, which needs no asking."""

    def __init__(self, context: Any, pointer: int, size: int, finalizer: Any) -> None:
        self.owned, self.host_pointer, self._bufptr_ = None, pointer, pointer
        driver.AutoFreePointer.__init__(self, context, c_void_p(pointer), size, finalizer=finalizer)
        self.handle, self._buflen_ = pointer, size


class _DeviceMemory(driver.MemoryPointer):  # type: ignore[misc]
    """Device memory whose end the piece is itself, not a `weakref.finalize`."""

    def __init__(self, context: Any, address: int, size: int, piece: Piece) -> None:
        super().__init__(context, driver.binding.CUdeviceptr(address), size)
        self.is_managed, self._finalizer = True, piece


class ForebayMemoryManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Numba's memory from the shared pool: one object for each context, made by Numba.

    Device memory is allocated in the order of the legacy default stream. Numba says no stream when it frees, so memory
    goes back behind everything that the device has then; nobody waits. Managed memory is Numba's own affair, as without
    this class.

    It implements version 1 of Numba's `External Memory Management Plugin interface
    <https://nvidia.github.io/numba-cuda/user/external-memory.html>`_.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._books = Books()
        self._pool, self._device = 0, 0

    def initialize(self) -> None:
        """Opens the pool. Numba calls this whenever the context is made current."""
        if not self._pool:
            # In a context that another library attached, the device is the driver's own object.
            device = self.context.device
            self._pool, self._device = shared_pool(), int(getattr(device, "id", device))
            pressure.start()

    def memalloc(self, size: int) -> Any:
        """Memory of the context's device.

        Parameters
        ----------
        size : int
            Bytes.

        Returns
        -------
        numba.cuda.MemoryPointer

        Raises
        ------
        MemoryError
            If there is none, after everything that could be given back was. The text has the pool's report.
        """
        if not self._pool:
            self.initialize()
        address = _core.malloc(self._pool, _core.FRAMEWORK_NUMBA, size, self._device, None)
        return _DeviceMemory(weakref.proxy(self.context), address, size, self._books.add(_free, self._pool, address))

    def memhostalloc(self, size: int, mapped: bool = False, portable: bool = False, wc: bool = False) -> Any:
        """Pinned memory of the host.

        Parameters
        ----------
        size : int
            Bytes.
        mapped : bool
            Whether kernels shall use it.
        portable : bool
            Whether it is pinned for every device. Memory of the pinned pool always is.
        wc : bool
            Whether it is write-combined. Such memory is the driver's own, which is slow to get and waits for the whole
            device when it is freed; all other comes from Forebay's pinned pool.

        Returns
        -------
        numba.cuda.MappedMemory or numba.cuda.PinnedMemory
        """
        self.initialize()
        if wc:
            buffer = HostMemoryResource(portable, mapped, True).allocate(size)
            address, piece = buffer.handle, self._books.add(buffer.close)
        else:
            pool = pinned_pool()._handle
            address = _core.malloc_ready(pool, size, self._device)
            piece = self._books.add(_free, pool, address)
        context = weakref.proxy(self.context)
        if not mapped:
            return driver.PinnedMemory(context, address, size, finalizer=piece)
        memory = piece.keeps = _MappedMemory(context, address, size, piece)
        return memory.own()

    def mempin(self, owner: Any, pointer: Any, size: int, mapped: bool = False) -> Any:
        """Pins memory that exists, until the answer is gone.

        Parameters
        ----------
        owner : object
            Whose memory it is; kept meanwhile.
        pointer : int
            Its address.
        size : int
            Bytes.
        mapped : bool
            Whether kernels shall use it.

        Returns
        -------
        numba.cuda.MappedMemory or numba.cuda.PinnedMemory

        Raises
        ------
        ForebayError
            If the driver refuses, as for memory that is pinned already.
        """
        self.initialize()
        address = int(getattr(pointer, "value", pointer))
        _core.pool_host_register(self._pool, self._device, address, size, False, bool(mapped))
        # At once, also where cleaning up is put off: until then the same memory cannot be pinned again.
        piece = self._books.add(_unpin, self._pool, self._device, address, at_once=True)
        context = weakref.proxy(self.context)
        if not mapped:
            return driver.PinnedMemory(context, address, size, owner=owner, finalizer=piece)
        memory = piece.keeps = driver.MappedMemory(context, address, size, owner=owner, finalizer=piece)
        return memory.own()

    def get_ipc_handle(self, memory: Any) -> Any:
        """A handle with which another process opens the memory, through Numba's own ways.

        Returns
        -------
        ForebayIpcHandle
            For memory of the pool, which the driver's legacy handles do not take. The other process needs this package,
            and any memory manager. For memory that somebody else gave Numba: Numba's own handle.
        """
        self.initialize()
        handle = ForebayIpcHandle.of(memory, self.context.device.get_device_identity())
        return driver.GetIpcHandleMixin.get_ipc_handle(self, memory) if handle is None else handle

    def get_memory_info(self) -> Any:
        """``(free, total)`` in bytes: what this context could still allocate, and what the device has.

        Free is what the device has free and what the pool holds idle, up to the pool's limit.
        """
        self.initialize()
        pool = Pool.shared()
        free, total = pool.memory_info(self._device)
        stats = pool.stats(self._device)
        free += stats.free_bytes
        if stats.limit:
            free = min(free, max(stats.limit - stats.live, 0))
        return cuda.MemoryInfo(free=min(free, total), total=total)

    def reset(self) -> None:
        """Gives everything back that this context has, also what is still referred to."""
        super().reset()
        self._books.reset()

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Puts off what is freed inside until the end of the outermost block."""
        with super().defer_cleanup(), self._books.put_off():
            yield

    @property
    def interface_version(self) -> int:
        """The version of Numba's interface: 1."""
        return 1


def _free(pool: int, address: int) -> None:
    status = _core.free_after_all(pool, address)
    if status and status not in _GONE:
        raise failure(status)


def _unpin(pool: int, device: int, address: int) -> None:
    try:
        _core.pool_host_unregister(pool, device, address)
    except ForebayError as error:
        if error.status not in _GONE:
            raise
