"""What callers pass, as the numbers that the library takes."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, TypeVar

MAX_SIZE = (1 << 64) - 1
_MAX_INT = (1 << 31) - 1

T = TypeVar("T")


def as_size(size: Any, name: str = "size") -> int:
    """A number of bytes.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is negative or needs more than 64 bits.
    """
    number = _integer(size, name)
    if not 0 <= number <= MAX_SIZE:
        raise ValueError(f"{name} is {number}: a number of bytes is from 0 to 2**64 - 1")
    return number


def as_pointer(pointer: Any, name: str = "ptr") -> int:
    """An address: an integer, None for NULL, or an object that `int` turns into one, as CUDA's handles are."""
    if pointer is None:
        return 0
    if isinstance(pointer, (bool, float, str, bytes)):
        raise TypeError(f"{name} is {pointer!r}: an address is an integer or an object that int() turns into one")
    try:
        number = int(pointer)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a {type(pointer).__name__}: int() gives no address for it") from None
    if not 0 <= number <= MAX_SIZE:
        raise ValueError(f"{name} is {number}: an address is from 0 to 2**64 - 1")
    return number


def as_device(device: Any, name: str = "device_id") -> int:
    """A device number: an integer, or an object with ``device_id`` as cuda.core's ``Device``. The library checks the range."""
    number = _integer(getattr(device, "device_id", device), name)
    if not -1 <= number <= _MAX_INT:
        raise ValueError(f"{name} is {number}: devices are counted from 0")
    return number


def as_numa(numa_id: Any) -> int:
    """A NUMA node; None: -1, which leaves it to the library."""
    if numa_id is None:
        return -1
    number = _integer(numa_id, "numa_id")
    if not -1 <= number <= _MAX_INT:
        raise ValueError(f"numa_id is {number}: nodes are counted from 0; None leaves the choice to the system")
    return number


def as_fd(fd: Any) -> int:
    """A file descriptor."""
    number = _integer(fd, "alloc_handle")
    if not 0 <= number <= _MAX_INT:
        raise ValueError(f"alloc_handle is {number}: a file descriptor is from 0 to 2**31 - 1")
    return number


def as_options(kind: type[T], options: Any) -> T:
    """Options given as their class or as a dict of its fields."""
    if isinstance(options, kind):
        return options
    if isinstance(options, dict):
        return kind(**options)
    raise TypeError(f"options is a {type(options).__name__}: it must be a {kind.__name__}, a dict of its fields, or None")


def as_devices(devices: Iterable[Any], name: str) -> list[int]:
    """A list of device numbers."""
    if isinstance(devices, (str, bytes)):
        raise TypeError(f"{name} is {devices!r}: it must be device numbers")
    return [as_device(device, name) for device in devices]


def _integer(value: Any, name: str) -> int:
    # True and False are integers to Python; as a size or a device they are a mistake.
    if isinstance(value, bool):
        raise TypeError(f"{name} is {value}: it must be an integer")
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}: it must be an integer") from None
