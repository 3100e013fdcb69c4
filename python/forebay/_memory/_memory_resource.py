"""What every memory resource is, also one that is written in Python alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Optional, TypeVar

from ..typing import DevicePointerType, SizeLike, StreamLike

if TYPE_CHECKING:
    from ._buffer import Buffer

R = TypeVar("R", bound="MemoryResource")


class MemoryResource(ABC):
    """Something that gives memory and takes it back.

    A resource may be written in Python alone: derive from this class, define `allocate` and `deallocate`, and in
    `allocate` make the buffer with ``Buffer.from_handle(ptr, size, self, stream=stream)``. When the last user of that
    memory is gone, ``deallocate(ptr, size, stream=stream)`` is called, with the stream given to `Buffer.close`, else
    that of the allocation.

    The members are those of `cuda.core.MemoryResource
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.MemoryResource.html>`_.
    """

    __slots__ = ()

    #: The library's object, where the resource is one of the library's.
    _handle: Optional[int] = None

    #: Whether a buffer that is pickled needs the resource beside its descriptor.
    _goes_with_buffers: ClassVar[bool] = False

    @abstractmethod
    def allocate(self, size: SizeLike, stream: StreamLike = None) -> Buffer:
        """Gives a buffer of at least `size` bytes, usable by work queued on `stream` from now on."""

    @abstractmethod
    def deallocate(self, ptr: DevicePointerType, size: SizeLike, stream: StreamLike = None) -> None:
        """Takes memory back in the order of `stream`."""

    @property
    def device_id(self) -> int:
        """The device of the memory; -1 for memory that belongs to none."""
        raise TypeError(f"{type(self).__name__} does not define device_id")

    @property
    def is_device_accessible(self) -> bool:
        """Whether a device may use the memory."""
        raise TypeError(f"{type(self).__name__} does not define is_device_accessible")

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host may use the memory."""
        raise TypeError(f"{type(self).__name__} does not define is_host_accessible")

    @property
    def is_managed(self) -> bool:
        """Whether the memory is CUDA managed memory."""
        return False

    @property
    def is_ipc_enabled(self) -> bool:
        """Whether buffers of this resource can be shared with other processes."""
        return False

    def __enter__(self: R) -> R:
        return self

    def __exit__(self, *_: object) -> None:
        close = getattr(self, "close", None)
        if close is not None:
            close()
