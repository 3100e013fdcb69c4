"""What a buffer gives to others: to other processes, to other libraries, to Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, cast

from .. import _core
from . import _array_interface, _dlpack, _ipc

if TYPE_CHECKING:
    from ._buffer import Buffer


class Exchange:
    """The part of `Buffer` that others call."""

    __slots__ = ()

    def _buffer(self) -> Buffer:
        return cast("Buffer", self)

    def get_ipc_descriptor(self) -> _ipc.IPCBufferDescriptor:
        """What another process needs to import the buffer. The buffer must live until it has.

        Raises
        ------
        RuntimeError
            If the resource is not made for sharing, or the buffer is closed.
        """
        buffer = self._buffer()
        known = buffer._special.descriptor if buffer._special is not None else None
        if known is None:
            known = _ipc.IPCBufferDescriptor.from_bytes(_core.buffer_get_ipc_descriptor(buffer._handle))
            buffer._remember(known)
        return known

    @property
    def ipc_descriptor(self) -> _ipc.IPCBufferDescriptor:
        """The same as :meth:`get_ipc_descriptor`, under newer cuda.core's name."""
        return self.get_ipc_descriptor()

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> object:
        """A DLPack capsule of the bytes, as one dimension of 8-bit integers. The tensor keeps the memory.

        Parameters
        ----------
        stream : int, optional
            The consumer's stream as the array API numbers it: None or 1, the legacy default stream; 2, the thread's
            own;
            -1, no ordering; else a CUstream. Unless it is the buffer's own stream or -1, this waits on the host for the
            work queued on the buffer's stream, and so does every export of memory that the host may use.
        max_version : tuple of two integers, optional
            The newest DLPack version the consumer takes; from (1, 0) on the capsule is a versioned one.
        dl_device : tuple of two integers, optional
            Where the consumer wants it; only where it is.
        copy : bool, optional
            True: the tensor is of a new buffer of the same resource, filled on `stream`.

        Raises
        ------
        BufferError
            For another `dl_device`, or a stream of 0, which the array API forbids.
        RuntimeError
            If the buffer is closed.
        """
        return _dlpack.give(self._buffer(), stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.device_of(self._buffer())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA Array Interface, version 3: bytes in one dimension, with the buffer's stream.

        Only memory that a device may use has it.
        """
        if not self._buffer().is_device_accessible:
            raise AttributeError("__cuda_array_interface__: no device may use this buffer's memory")
        return _array_interface.describe(self._buffer())

    def as_memoryview(self) -> memoryview:
        """A writable view of the bytes, for memory that the host may use. Waits for the work queued on the buffer's
        stream.

        The view keeps the memory, even past :meth:`close`. Work that is queued later is for the caller to wait for.

        Raises
        ------
        BufferError
            If the host may not use the memory.
        """
        return _array_interface.view(self._buffer())

    def __buffer__(self, flags: int, /) -> memoryview:
        """Python's buffer protocol (PEP 688, from Python 3.12 on): as :meth:`as_memoryview`."""
        return _array_interface.view(self._buffer())
