"""Page-locked host memory without streams."""

from __future__ import annotations

from .. import _core
from .._arguments import as_bool
from ._library_memory_resource import LibraryMemoryResource


class HostMemoryResource(LibraryMemoryResource, kind=_core.RESOURCE_KIND_HOST):
    """Page-locked host memory, given at once and taken back after the work queued on the stream of the close.

    Parameters
    ----------
    portable : bool
        Page-locked for every device's context, not only that of the current device.
    mapped : bool
        Mapped into the devices' addresses, where the system does not do that anyway.
    write_combined : bool
        Faster to write and to copy to a device, slow to read.

    Raises
    ------
    RuntimeError
        If there is no usable driver.

    Notes
    -----
    As `cuda.core.LegacyPinnedMemoryResource
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.LegacyPinnedMemoryResource.html>`_. Any
    thread may use it. ``cuMemHostAlloc`` in the CUDA driver's documentation has the flags.
    """

    __slots__ = ()

    def __init__(self, portable: bool = True, mapped: bool = True, write_combined: bool = False) -> None:
        portable, mapped = as_bool(portable, "portable"), as_bool(mapped, "mapped")
        self._handle = _core.host_resource_create(portable, mapped, as_bool(write_combined, "write_combined"))
