"""Page-locked host memory without streams."""

from __future__ import annotations

from ctypes import c_void_p

from .. import _library
from .. import _structs as s
from .._arguments import as_bool
from .._errors import check
from ._library_resource import LibraryResource


class HostMemoryResource(LibraryResource, kind=s.ResourceKind.HOST):
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
    As cuda.core's LegacyPinnedMemoryResource and Numba's ``memhostalloc`` (document 002). ``cuMemHostAlloc`` in the CUDA
    driver's documentation has the flags.
    """

    __slots__ = ()

    def __init__(self, portable: bool = True, mapped: bool = True, write_combined: bool = False) -> None:
        raw = s.HostOptions()
        check(_library.forebay_host_resource_options_init(raw))
        raw.portable, raw.mapped = as_bool(portable, "portable"), as_bool(mapped, "mapped")
        raw.write_combined = as_bool(write_combined, "write_combined")
        out = c_void_p()
        check(_library.forebay_host_resource_create(raw, out))
        self._handle = out.value
