"""What the plug-ins of the frameworks have in common: finding the framework, and the pool."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any, Optional

from . import _core
from ._pool import Pool


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


def keep_nccl_from_graphs() -> None:
    """Sees to it that NCCL does not register the buffers of captured collectives by itself: ``NCCL_GRAPH_REGISTER=0``,
    unless the variable is set.

    NCCL (2.28 and before) registers a buffer only if it lies in one piece of physical memory, and each process decides
    that alone: where one takes a buffer and another does not, the replay of the graph hangs. Memory of the pool is in
    pieces, as that of PyTorch's expandable segments is. NCCL reads the variable when the first communicator is made,
    and it has to be the same in every process.
    """
    if (found := os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")) != "0":
        warnings.warn(
            f"NCCL_GRAPH_REGISTER is {found!r}: with memory of several physical pieces the replay of a graph with collectives "
            "can hang; set it to 0, or leave it unset, in every process",
            RuntimeWarning,
            stacklevel=3,
        )


def probe(pool: int) -> None:
    """Raises what an allocation would, where none can succeed: there is no driver, or this is a forked child."""
    _core.malloc(pool, _core.FRAMEWORK_C, 0, 0, None)


def ready(pool: Optional[Pool]) -> Pool:
    """The pool that was given, or the shared one, where allocations from it can succeed.

    Raises
    ------
    TypeError
        If it is no Pool.
    RuntimeError
        If there is no usable driver, or this is a forked child.
    """
    chosen = Pool.shared() if pool is None else pool
    probe(raw(chosen))
    return chosen


_pinned: Optional[Pool] = None


def pinned_pool() -> Pool:
    """The pool of pinned memory that the plug-ins share. Made on first use; it stays, since frameworks free late."""
    global _pinned
    if _pinned is None:
        _pinned = Pool(pinned=True)._stay()
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
    return pool._handle
