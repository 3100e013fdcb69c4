"""Public names print as those of the module that users import them from."""

from __future__ import annotations

from typing import Any


def set_module(namespace: dict[str, Any]) -> None:
    """Sets `__module__` of every class and function that a module exports.

    Parameters
    ----------
    namespace : dict
        The module's ``globals()``, with ``__all__``.
    """
    for name in namespace["__all__"]:
        public = namespace[name]
        if getattr(public, "__module__", "").startswith("forebay"):
            public.__module__ = namespace["__name__"]
