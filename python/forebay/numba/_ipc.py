"""Device memory between processes, through Numba's own handles."""

from __future__ import annotations

import weakref
from ctypes import c_void_p
from typing import Any, Optional

from .._errors import InvalidArgumentError
from .._memory._buffer import Buffer
from .._memory._ipc import IPCBufferDescriptor, export_pointer
from ._connect import cuda, driver, serialize


class _Bytes:
    """Stands where Numba has a ``CUipcMemHandle``: its bytes are in `reserved`."""

    __slots__ = ("reserved",)

    def __init__(self, reserved: bytes) -> None:
        self.reserved = reserved

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bytes) and self.reserved == other.reserved

    def __hash__(self) -> int:
        return hash(self.reserved)


class ForebayIpcHandle(driver.IpcHandle):  # type: ignore[misc]
    """A handle of Numba's that carries Forebay's descriptor, since the pool's memory has no legacy handle.

    Pickle it, or the ``IpcArrayHandle`` of an array around it, and open it in another process of the same user on this
    machine: there `forebay` must be installed, and Numba may have any memory manager. The exporter keeps the memory,
    and answers, until the other process has opened it. On another device than the memory's, opening makes a copy.
    """

    @classmethod
    def of(cls, memory: Any, source_info: Any) -> Optional[ForebayIpcHandle]:
        """The handle of memory of the shared pool; None for any other memory."""
        try:
            descriptor = export_pointer(memory.device_pointer_value or 0)
        except InvalidArgumentError:
            return None
        return cls(memory, _Bytes(bytes(descriptor)), memory.size, source_info)

    def open(self, context: Any) -> Any:
        """Opens it: a pointer that is valid until `close`."""
        if self.source_info is None or self.source_info == context.device.get_device_identity():
            return self.open_direct(context)
        return self.open_staged(context)

    def open_direct(self, context: Any) -> Any:
        """The exporter's memory itself, for its own device."""
        self._impl = impl = self._checked(_Direct(self))
        return impl.open(context)

    def open_staged(self, context: Any) -> Any:
        """A copy for the context's device, made through the host."""
        self._sentry_source_info()
        self._impl = impl = self._checked(_Staged(self))
        return impl.open(context)

    def _checked(self, impl: Any) -> Any:
        if self.base is not None:
            raise ValueError("opening IpcHandle from original process")
        if self._impl is not None:
            raise ValueError("IpcHandle is already opened")
        return impl

    def __reduce__(self) -> tuple[Any, ...]:
        return serialize._rebuild_reduction, (type(self), self.handle.reserved, self.size, self.source_info, self.offset)

    @classmethod
    def _rebuild(cls, reserved: bytes, size: int, source_info: Any, offset: int) -> ForebayIpcHandle:
        return cls(None, _Bytes(reserved), size, source_info, offset)


class _Direct:
    def __init__(self, parent: ForebayIpcHandle) -> None:
        self._parent = parent
        self._buffer: Optional[Buffer] = None

    def open(self, context: Any) -> Any:
        parent = self._parent
        descriptor = IPCBufferDescriptor.from_bytes(parent.handle.reserved)
        try:
            self._buffer = Buffer.from_ipc_descriptor(None, descriptor)
        except BaseException:
            parent._impl = None  # it can be tried again
            raise
        # What is opened is the buffer; the pointer owns nothing, as with Numba's own handles.
        return driver.MemoryPointer(weakref.proxy(context), c_void_p(self._buffer.handle), parent.size)

    def close(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.close()


class _Staged:
    def __init__(self, parent: ForebayIpcHandle) -> None:
        self._parent = parent

    def open(self, context: Any) -> Any:
        parent, direct = self._parent, _Direct(self._parent)
        between = bytearray(parent.size)
        source = driver.Device.from_identity(parent.source_info)
        with cuda.gpus[int(source.id)]:
            try:
                driver.device_to_host(between, direct.open(cuda.current_context()), parent.size)
            finally:
                direct.close()
        memory = context.memalloc(parent.size)
        driver.host_to_device(memory, between, parent.size)
        return memory

    def close(self) -> None:
        """The copy belongs to whoever opened it."""
