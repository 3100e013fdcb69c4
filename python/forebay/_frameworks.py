"""What the plug-ins of the frameworks have in common: finding the framework, and blocks of a pool."""

from __future__ import annotations

import importlib
from ctypes import byref, c_void_p
from typing import Any, Optional

from . import _library
from ._errors import check, failure
from ._pool import Pool

#: ``FOREBAY_FRAMEWORK_*``: whom the figures count a block for.
NUMBA, CUDA_CORE = 3, 4

_malloc_for, _malloc_ready = _library.forebay_malloc_for, _library.forebay_malloc_ready

# Output cells that no call is using, each with the reference to it that is passed: see `_resources._library_resource`.
_cells: list[tuple[c_void_p, Any]] = []


def need(module: str, name: str, packages: str) -> Any:
    """The framework's module.

    Raises
    ------
    ImportError
        If it cannot be imported, with what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{name} cannot be imported ({error}): install it with `pip install {packages}`") from error


def probe(pool: int) -> None:
    """Raises what an allocation would, where none can succeed: there is no driver, or this is a forked child."""
    malloc(pool, 0, 0, 0, None)


def malloc(pool: int, framework: int, size: int, device: int, stream: Optional[int]) -> int:
    """The address of a new block, in the order of a stream; 0 for a size of 0."""
    try:
        pair = _cells.pop()
    except IndexError:
        pair = _new_cell()
    status = _malloc_for(pool, framework, size, device, stream, pair[1])
    address = pair[0].value
    _cells.append(pair)
    if status:
        raise failure(status)
    return address or 0 if size else 0


def malloc_ready(pool: int, size: int, device: int) -> int:
    """The address of a new block of pinned memory that the host may touch at once."""
    cell, reference = _new_cell()
    check(_malloc_ready(pool, size, device, None, reference))
    return cell.value or 0


def _new_cell() -> tuple[c_void_p, Any]:
    cell = c_void_p()
    return cell, byref(cell)


_pinned: Optional[Pool] = None


def pinned_pool() -> Pool:
    """The pool of pinned memory that the plug-ins share. Made on first use; it stays, since frameworks free late."""
    global _pinned
    if _pinned is None:
        _pinned = Pool(pinned=True)
    return _pinned


def raw(pool: Pool) -> int:
    """The library's object for a pool.

    Raises
    ------
    TypeError
        If it is none.
    """
    if not isinstance(pool, Pool):
        raise TypeError(f"pool is a {type(pool).__name__}: it must be a forebay.Pool, or None for the shared one")
    return pool._handle or 0
