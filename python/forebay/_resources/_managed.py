"""Managed memory from a stream-ordered pool of the driver."""

from __future__ import annotations

from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any, Optional, Union

from .. import _library
from .. import _structs as s
from .._arguments import as_device, as_options
from .._errors import check
from ..typing import ManagedMemoryLocationType
from ._library_resource import _info
from ._pooled import PooledResource
from ._words import PREFERRED, number_of, preferred_of


@dataclass
class ManagedMemoryResourceOptions:
    """How a `ManagedMemoryResource` makes its pool.

    Attributes
    ----------
    preferred_location : int, optional
        A device or a NUMA node, as the type says.
    preferred_location_type : ManagedMemoryLocationType or str, optional
        ``"device"``: a device's number. ``"host"``: no number. ``"host_numa"``: a node's number, or None for the device's node.
        None: `preferred_location` is a device, -1 the host, and None no preference.
    """

    preferred_location: Optional[int] = None
    preferred_location_type: Union[ManagedMemoryLocationType, str, None] = None


class ManagedMemoryResource(PooledResource, kind=s.ResourceKind.MANAGED):
    """Memory that host and devices use at one address, and that moves between them.

    Parameters
    ----------
    options : ManagedMemoryResourceOptions or dict, optional
        Makes a new pool, which the resource owns. None: the driver's current managed pool, which it does not own.

    Raises
    ------
    ValueError
        If the preferred location and its type do not fit.
    NotImplementedError
        If the driver has no such pools.
    """

    __slots__ = ()

    def __init__(self, options: Union[ManagedMemoryResourceOptions, dict[str, Any], None] = None) -> None:
        raw = None
        if options is not None:
            kind, location = _preference(as_options(ManagedMemoryResourceOptions, options))
            raw = s.ManagedOptions()
            check(_library.forebay_managed_resource_options_init(raw))
            raw.preferred_location_type, raw.preferred_location = kind, location
        out = c_void_p()
        check(_library.forebay_managed_resource_create(raw, out))
        self._handle = out.value

    @property
    def preferred_location(self) -> Optional[tuple[ManagedMemoryLocationType, Optional[int]]]:
        """Where the memory prefers to be, as (type, number); the host has no number. None: no preference."""
        info = _info(self._handle)
        word = preferred_of(info.preferred_location_type)
        if word is None:
            return None
        return word, None if word is ManagedMemoryLocationType.HOST else info.preferred_location


def _preference(options: ManagedMemoryResourceOptions) -> tuple[int, int]:
    """The library's numbers for a preferred location."""
    word, number = options.preferred_location_type, options.preferred_location
    number = None if number is None else as_device(number, "preferred_location")
    if word is None:
        if number is None:
            return s.Location.NONE, 0
        return (s.Location.HOST, 0) if number == -1 else (s.Location.DEVICE, number)
    kind = number_of(PREFERRED, word, "preferred_location_type")
    if kind == s.Location.HOST:
        if number is not None:
            raise ValueError(f"preferred_location is {number}: with preferred_location_type 'host' it must be None")
        return kind, 0
    if number is None and kind == s.Location.HOST_NUMA:
        return kind, -1
    if number is None or number < 0:
        raise ValueError(f"preferred_location is {number}: with preferred_location_type {str(word)!r} it is counted from 0")
    return kind, number
