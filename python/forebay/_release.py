"""What a buffer lets go of that only Python can: an owner, or memory of a resource written in Python.

The library calls one C function when such memory is finally free, which may be later than `Buffer.close`: a DLPack tensor
or a view may still hold it. The function gets a number, and this table says what the number stands for.
"""

from __future__ import annotations

import itertools
from ctypes import CFUNCTYPE, c_void_p, cast
from typing import Any, Optional

_numbers = itertools.count(1)
_table: dict[int, Release] = {}


class Release:
    """What is to be let go of, and how far that is."""

    __slots__ = ("error", "inside_close", "number", "owner", "ptr", "resource", "size", "stream")

    def __init__(self, owner: object, resource: Any, ptr: int, size: int, stream: object) -> None:
        self.owner, self.resource, self.ptr, self.size, self.stream = owner, resource, ptr, size, stream
        #: Set while `Buffer.close` runs, which can raise what `deallocate` raised; elsewhere nobody could catch it.
        self.inside_close = False
        self.error: Optional[BaseException] = None
        self.number = next(_numbers)


def add(owner: object, resource: Any, ptr: int, size: int, stream: object) -> Release:
    """Remembers what to let go of. The caller passes `.number` and `FUNCTION` to the library."""
    entry = Release(owner, resource, ptr, size, stream)
    _table[entry.number] = entry
    return entry


def forget(entry: Release) -> None:
    """The library did not take it over."""
    _table.pop(entry.number, None)


def _call(number: int) -> None:
    entry = _table.pop(number, None)
    if entry is None or entry.resource is None:
        return
    try:
        # By name: some resources take the stream by position or name, some by name only.
        entry.resource.deallocate(entry.ptr, entry.size, stream=entry.stream)
    except BaseException as error:
        if not entry.inside_close:
            raise  # ctypes hands it to sys.unraisablehook
        entry.error = error


# Both names stay: the library may call the function as long as the process lives.
_called = CFUNCTYPE(None, c_void_p)(_call)
FUNCTION: int = cast(_called, c_void_p).value or 0
