"""Making CuPy allocate from Forebay, and ending that."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from .. import pressure
from .._frameworks import keep_nccl_from_graphs, probe
from .._pool import Pool
from ._connect import cupy
from ._pool import MemoryPool


class _Installed(NamedTuple):
    given: Optional[Pool]
    pool: MemoryPool
    malloc: Any
    before: Any


_installed: Optional[_Installed] = None


def install(pool: Optional[Pool] = None) -> MemoryPool:
    """Makes CuPy allocate from a pool of Forebay's, in the order of CuPy's current stream, with its memory hooks.

    Parameters
    ----------
    pool : forebay.Pool, optional
        None: the shared pool. Again with the same pool is harmless; with another one, that one is used from then on.

    Returns
    -------
    MemoryPool
        What `cupy.get_default_memory_pool` is without Forebay: figures, limit, ``free_all_blocks``.

    Raises
    ------
    RuntimeError
        If there is no usable driver, this is a forked child, or this CuPy is unknown; CuPy is then as it was.
    ValueError
        Inside of `cupy.cuda.using_allocator`.

    Notes
    -----
    Sets ``NCCL_GRAPH_REGISTER=0`` in the environment, if that is unset: collectives inside of CUDA graphs can hang
    otherwise. Arrays that CuPy has already stay where they are, and free where they came from. A failed allocation
    raises `cupy.cuda.memory.OutOfMemoryError` with the pool's report.
    """
    global _installed
    if _installed is not None and _installed.given is pool and cupy.cuda.get_allocator() is _installed.malloc:
        return _installed.pool
    made = MemoryPool(pool)
    probe(made._pool._handle)
    pressure.start(pool)
    malloc, now = made.malloc, cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(malloc)
    ours = _installed is not None and now is _installed.malloc
    _installed = _Installed(pool, made, malloc, _installed.before if _installed is not None and ours else now)
    # Last: where warnings are errors, this raises.
    keep_nccl_from_graphs()
    return made


def uninstall() -> None:
    """Gives CuPy the allocator back that it had, unless somebody has set another one since. Without `install`: no
    effect.

    Arrays that were allocated from Forebay stay valid, and go back there.
    """
    global _installed
    if _installed is None:
        return
    if cupy.cuda.get_allocator() is _installed.malloc:
        cupy.cuda.set_allocator(_installed.before)
    _installed = None


def pool() -> MemoryPool:
    """The pool that CuPy allocates from: that of the last `install`, else the shared one."""
    return _installed.pool if _installed is not None else MemoryPool()
