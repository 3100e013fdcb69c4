"""Managed memory from a stream-ordered pool of the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Union

from .. import _core
from .._arguments import as_device, as_number, as_options
from ..typing import DeviceLike, ManagedMemoryLocationType
from ._memory_pool import MemoryPool

_PREFERRED = {
    _core.LOCATION_DEVICE: ManagedMemoryLocationType.DEVICE,
    _core.LOCATION_HOST: ManagedMemoryLocationType.HOST,
    _core.LOCATION_HOST_NUMA: ManagedMemoryLocationType.HOST_NUMA,
}


@dataclass
class ManagedMemoryResourceOptions:
    """How a `ManagedMemoryResource` makes its pool.

    Attributes
    ----------
    preferred_location : int, optional
        A device or a NUMA node, as the type says.
    preferred_location_type : ManagedMemoryLocationType or str, optional
        ``"device"``: a device's number. ``"host"``: no number. ``"host_numa"``: a node's number, or None for the
        device's node. None: `preferred_location` is a device, -1 the host, and None no preference.

    Notes
    -----
    The fields are those of `cuda.core.ManagedMemoryResourceOptions
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.ManagedMemoryResourceOptions.html>`_.
    """

    preferred_location: Optional[DeviceLike] = None
    preferred_location_type: Union[ManagedMemoryLocationType, str, None] = None


class ManagedMemoryResource(MemoryPool, kind=_core.RESOURCE_KIND_MANAGED):
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

    Notes
    -----
    Has the members of `cuda.core.ManagedMemoryResource
    <https://nvidia.github.io/cuda-python/cuda-core/latest/generated/cuda.core.ManagedMemoryResource.html>`_. Any thread
    may use it.
    """

    __slots__ = ()

    def __init__(self, options: Union[ManagedMemoryResourceOptions, dict[str, Any], None] = None) -> None:
        source, kind, location = _core.POOL_SOURCE_CURRENT, _core.LOCATION_NONE, 0
        if options is not None:
            source = _core.POOL_SOURCE_NEW
            kind, location = _preference(as_options(ManagedMemoryResourceOptions, options))
        self._handle = _core.managed_resource_create(source, kind, location)

    @property
    def preferred_location(self) -> Optional[tuple[ManagedMemoryLocationType, Optional[int]]]:
        """Where the memory prefers to be, as (type, number); the host has no number. None: no preference."""
        info = self._info()
        word = _PREFERRED.get(info.preferred_location_type)
        if word is None:
            return None
        return word, None if word is ManagedMemoryLocationType.HOST else info.preferred_location


def _preference(options: ManagedMemoryResourceOptions) -> tuple[int, int]:
    """The library's numbers for a preferred location."""
    word, number = options.preferred_location_type, options.preferred_location
    number = None if number is None else as_device(number, "preferred_location")
    if word is None:
        if number is None:
            return _core.LOCATION_NONE, 0
        return (_core.LOCATION_HOST, 0) if number == -1 else (_core.LOCATION_DEVICE, number)
    kind = as_number("LOCATION", ManagedMemoryLocationType, word, "preferred_location_type")
    if kind == _core.LOCATION_HOST:
        if number is not None:
            raise ValueError(f"preferred_location is {number}: with preferred_location_type 'host' it must be None")
        return kind, 0
    if number is None and kind == _core.LOCATION_HOST_NUMA:
        return kind, -1
    if number is None or number < 0:
        raise ValueError(f"preferred_location is {number}: with preferred_location_type {str(word)!r} it is counted from 0")
    return kind, number
