"""The interface's words for the library's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from .. import _structs as s
from ..typing import ManagedMemoryLocationType as Managed
from ..typing import VirtualMemoryAccessType as Access
from ..typing import VirtualMemoryAllocationType as Allocation
from ..typing import VirtualMemoryGranularityType as Granularity
from ..typing import VirtualMemoryHandleType as Handle
from ..typing import VirtualMemoryLocationType as Location

ACCESS: Mapping[Any, int] = {None: 0, Access.READ: 1, Access.READ_WRITE: 2}
ALLOCATION: Mapping[Any, int] = {Allocation.PINNED: 0, Allocation.MANAGED: 1}
LOCATION: Mapping[Any, int] = {
    Location.DEVICE: s.Location.DEVICE,
    Location.HOST: s.Location.HOST,
    Location.HOST_NUMA: s.Location.HOST_NUMA,
    Location.HOST_NUMA_CURRENT: s.Location.HOST_NUMA_CURRENT,
}
HANDLE: Mapping[Any, int] = {
    None: 0,
    Handle.POSIX_FD: 1,
    Handle.GENERIC: 2,
    Handle.WIN32: 3,
    Handle.WIN32_KMT: 4,
    Handle.FABRIC: 5,
}
GRANULARITY: Mapping[Any, int] = {Granularity.MINIMUM: 0, Granularity.RECOMMENDED: 1}
PREFERRED: Mapping[Any, int] = {
    Managed.DEVICE: s.Location.DEVICE,
    Managed.HOST: s.Location.HOST,
    Managed.HOST_NUMA: s.Location.HOST_NUMA,
}


def number_of(words: Mapping[Any, int], word: Any, name: str) -> int:
    """The library's number for a word, given as its enumeration or as its string.

    Raises
    ------
    ValueError
        For an unknown word, naming the known ones.
    """
    # Members are strings and hash as strings, so one look-up serves both. Anything unhashable is no word either.
    if word is None or isinstance(word, str):
        number = words.get(word)
        if number is not None:
            return number
    known = ", ".join("None" if known is None else repr(str(known)) for known in words)
    raise ValueError(f"{name} is {word!r}: it must be one of {known}")


def access_of(number: int) -> Optional[Access]:
    """The word for a ``FOREBAY_ACCESS_*``."""
    words: dict[int, Optional[Access]] = {value: key for key, value in ACCESS.items()}
    return words[number]


def preferred_of(number: int) -> Optional[Managed]:
    """The word for the ``FOREBAY_LOCATION_*`` of managed memory; None: no preference."""
    return {value: key for key, value in PREFERRED.items()}.get(number)
