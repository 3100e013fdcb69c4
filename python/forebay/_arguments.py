"""What callers pass, as the numbers that the library takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
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


def as_bool(value: Any, name: str) -> bool:
    """Yes or no: a bool, Python's or NumPy's. The text "no" is true to Python, and so nothing else is taken.

    Raises
    ------
    TypeError
        If it is anything else.
    """
    kind = type(value)
    if kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")):
        return bool(value)
    raise TypeError(f"{name} is {value!r}: it must be True or False")


def as_options(kind: type[T], options: Any) -> T:
    """Options given as their class, as a dict of its fields, or as an object of another library's dataclass of that name, as
    cuda.core's, whose fields are among them.

    An iterator among them is empty the second time that it is gone through, so what it gave takes its place where it was found.

    Raises
    ------
    TypeError
        If it is anything else.
    """
    if isinstance(options, kind):
        return options
    if isinstance(options, dict):
        options.update((name, tuple(value)) for name, value in list(options.items()) if isinstance(value, Iterator))
        return kind(**options)
    theirs = type(options)
    name_of_theirs = theirs.__name__ if theirs.__module__ == "builtins" else f"{theirs.__module__}.{theirs.__name__}"
    if theirs.__name__ == kind.__name__ and is_dataclass(theirs):
        known, given = {field.name for field in fields(kind)}, {field.name for field in fields(theirs)}  # type: ignore[arg-type]
        if given - known:
            raise TypeError(
                f"options is a {name_of_theirs} with {', '.join(sorted(given - known))}, which Forebay does not know: "
                f"give a forebay.{kind.__name__} or a dict of {', '.join(sorted(known))}"
            )
        for name in given:
            if isinstance(getattr(options, name), Iterator):
                setattr(options, name, tuple(getattr(options, name)))
        return kind(**{name: getattr(options, name) for name in given})
    raise TypeError(f"options is a {name_of_theirs}: it must be a forebay.{kind.__name__}, a dict of its fields, or None")


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
