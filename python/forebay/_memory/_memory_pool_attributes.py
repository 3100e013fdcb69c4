"""The attributes of a driver pool."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._arguments import as_size
from ..typing import SizeLike


class _Attribute:
    """One attribute of a pool, ``FOREBAY_ATTRIBUTE_*``; its text is what `help` shows."""

    def __init__(self, text: str) -> None:
        self.__doc__ = text

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.number = name, int(getattr(_core, f"ATTRIBUTE_{name.upper()}"))

    def _read(self, attributes: _MemPoolAttributes) -> int:
        return _core.resource_get_attribute(attributes._resource._handle, self.number)

    def _write(self, attributes: _MemPoolAttributes, value: int) -> None:
        _core.resource_set_attribute(attributes._resource._handle, self.number, value)


class _Flag(_Attribute):
    """A yes or no."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else bool(self._read(instance))

    def __set__(self, instance: _MemPoolAttributes, value: bool) -> None:
        if not isinstance(value, (bool, int)):
            raise TypeError(f"{self.name} is a {type(value).__name__}: it must be True or False")
        self._write(instance, int(bool(value)))


class _Bytes(_Attribute):
    """A number of bytes."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else self._read(instance)

    def __set__(self, instance: _MemPoolAttributes, value: SizeLike) -> None:
        self._write(instance, as_size(value, self.name))


class _MemPoolAttributes:
    """The attributes of the pool behind a resource, read and written through.

    The driver takes the ``reuse_*`` flags, ``release_threshold``, and 0 for a ``*_high``, which makes the present
    figure the highest. Everything else it refuses, with ValueError.
    """

    __slots__ = ("_resource",)

    _resource: Any

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("_MemPoolAttributes are read from a memory resource's attributes")

    @classmethod
    def _of(cls, resource: Any) -> _MemPoolAttributes:
        self = cls.__new__(cls)
        self._resource = resource
        return self

    reuse_follow_event_dependencies = _Flag("Whether memory is reused where an event orders the streams.")
    reuse_allow_opportunistic = _Flag("Whether memory is reused once its free is seen to be done.")
    reuse_allow_internal_dependencies = _Flag("Whether the driver may make a stream wait for another to reuse memory.")
    release_threshold = _Bytes("Bytes that the pool keeps when a synchronisation lets it give memory back.")
    reserved_mem_current = _Bytes("Bytes the pool holds.")
    reserved_mem_high = _Bytes("The most bytes the pool held; 0 resets it.")
    used_mem_current = _Bytes("Bytes given out.")
    used_mem_high = _Bytes("The most bytes given out; 0 resets it.")

    def __repr__(self) -> str:
        names = [name for name, value in vars(type(self)).items() if isinstance(value, _Attribute)]
        return f"_MemPoolAttributes({', '.join(f'{name}={getattr(self, name)}' for name in names)})"
