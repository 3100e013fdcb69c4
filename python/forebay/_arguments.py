"""What callers pass, as the numbers that the library takes: one function for each kind of argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import index
from typing import Any, TypeVar

from . import _core
from .typing import DeviceLike, SizeLike

MAX_SIZE = (1 << 64) - 1
_MAX_INT = (1 << 31) - 1

T = TypeVar("T")


#: The units of sizes in texts, those of the variable ``FOREBAY_LIMIT``.
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def as_size(size: SizeLike, name: str = "size") -> int:
    """A number of bytes: an integer, or a text as ``"512M"`` with K, M, G or T for powers of 1024.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If it is negative, needs more than 64 bits, or the text is no number.
    """
    if isinstance(size, str):
        found = re.fullmatch(r"([0-9]+)([KMGT]?)", size.strip().upper())
        if found is None:
            raise ValueError(f"{name} is {size!r}: it must be a number of bytes, or one with K, M, G or T such as '512M'")
        number = int(found[1]) * _UNITS[found[2]]
    else:
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


def as_device(device: DeviceLike, name: str = "device_id") -> int:
    """A device's number: an integer, a text as ``"cuda:0"``, or the device of a framework: `torch.device`,
    `cupy.cuda.Device`, `cuda.core.Device`, a device or context of Numba. The library checks the range.

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If it is out of range, or names no CUDA device's number.
    """
    number = _integer(_number_of(device, name), name)
    if not -1 <= number <= _MAX_INT:
        raise ValueError(f"{name} is {number}: devices are counted from 0")
    return number


def _number_of(device: Any, name: str) -> Any:
    kind = getattr(device, "type", None)
    if isinstance(device, str) or isinstance(kind, str):  # also torch.device, whose text is the same
        found = re.fullmatch(r"cuda:([0-9]+)", str(device))
        if found is None:
            raise ValueError(f"{name} is {str(device)!r}: it must name a device and its number, such as 'cuda:0'")
        return int(found[1])
    device = getattr(device, "device", device)  # a context of Numba has one
    for attribute in ("device_id", "id"):  # cuda.core's; CuPy's and Numba's
        if (number := getattr(device, attribute, None)) is not None:
            return number
    return device


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
    """Options given as their class, as a dict of its fields, or as an object of another library's dataclass of that
    name, as cuda.core's, whose fields are among them.

    An iterator among them is empty the second time that it is gone through, so what it gave takes its place where it
    was found.

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


def as_number(prefix: str, kind: type[Enum], word: Any, name: str, *, optional: bool = False) -> int:
    """The library's number for a member of an enumeration, which may be given as its string.

    Parameters
    ----------
    prefix : str
        The numbers are ``FOREBAY_<prefix>_<member>`` of ``forebay.h``.
    kind : type
        The enumeration.
    word : member, str or None
        What the caller gave.
    name : str
        What the argument is called.
    optional : bool
        Whether None is taken, as ``FOREBAY_<prefix>_NONE``.

    Raises
    ------
    ValueError
        For an unknown word, naming the known ones.
    """
    known = {member.value: member.name for member in kind}
    known.update({None: "NONE"} if optional else {})
    if not (word is None or isinstance(word, str)) or word not in known:
        words = ", ".join("None" if value is None else repr(str(value)) for value in known)
        raise ValueError(f"{name} is {word!r}: it must be one of {words}")
    return int(getattr(_core, f"{prefix}_{known[word]}"))


def as_devices(devices: Iterable[DeviceLike], name: str) -> list[int]:
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
