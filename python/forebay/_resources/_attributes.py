"""The attributes of a driver pool."""

from __future__ import annotations

from ctypes import byref, c_uint64
from typing import Any

from .. import _library
from .._arguments import as_size
from .._errors import check
from .._structs import Attribute


class _Flag:
    """One yes or no of the pool."""

    def __init__(self, attribute: Attribute, text: str) -> None:
        self.attribute, self.__doc__ = attribute, text

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else bool(instance._get(self.attribute))

    def __set__(self, instance: Any, value: bool) -> None:
        if not isinstance(value, (bool, int)):
            raise TypeError(f"{self.attribute.name.lower()} is a {type(value).__name__}: it must be True or False")
        instance._set(self.attribute, int(bool(value)))


class _Bytes:
    """One number of bytes of the pool."""

    def __init__(self, attribute: Attribute, text: str) -> None:
        self.attribute, self.__doc__ = attribute, text

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else instance._get(self.attribute)

    def __set__(self, instance: Any, value: int) -> None:
        instance._set(self.attribute, as_size(value, self.attribute.name.lower()))


class _MemPoolAttributes:
    """The attributes of the pool behind a resource, read and written through (documents 000 and 003).

    The driver takes the ``reuse_*`` flags, ``release_threshold``, and 0 for a ``*_high``, which makes the present figure the
    highest. Everything else it refuses, with ValueError.
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

    def _get(self, attribute: Attribute) -> int:
        out = c_uint64()
        check(_library.forebay_resource_get_attribute(self._resource._handle, attribute, byref(out)))
        return out.value

    def _set(self, attribute: Attribute, value: int) -> None:
        check(_library.forebay_resource_set_attribute(self._resource._handle, attribute, value))

    reuse_follow_event_dependencies = _Flag(
        Attribute.REUSE_FOLLOW_EVENT_DEPENDENCIES, "Whether memory is reused where an event orders the streams."
    )
    reuse_allow_opportunistic = _Flag(
        Attribute.REUSE_ALLOW_OPPORTUNISTIC, "Whether memory is reused once its free is seen to be done."
    )
    reuse_allow_internal_dependencies = _Flag(
        Attribute.REUSE_ALLOW_INTERNAL_DEPENDENCIES, "Whether the driver may make a stream wait for another to reuse memory."
    )
    release_threshold = _Bytes(
        Attribute.RELEASE_THRESHOLD, "Bytes that the pool keeps when a synchronisation lets it give memory back."
    )
    reserved_mem_current = _Bytes(Attribute.RESERVED_MEM_CURRENT, "Bytes the pool holds.")
    reserved_mem_high = _Bytes(Attribute.RESERVED_MEM_HIGH, "The most bytes the pool held; 0 resets it.")
    used_mem_current = _Bytes(Attribute.USED_MEM_CURRENT, "Bytes given out.")
    used_mem_high = _Bytes(Attribute.USED_MEM_HIGH, "The most bytes given out; 0 resets it.")

    def __repr__(self) -> str:
        names = [attribute.name.lower() for attribute in Attribute]
        return f"_MemPoolAttributes({', '.join(f'{name}={getattr(self, name)}' for name in names)})"
