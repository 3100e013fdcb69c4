"""Memory of Forebay's own pools."""

from __future__ import annotations

from typing import Optional

from .. import _core
from .._arguments import as_device
from .._pool import Pool
from ..typing import DeviceLike
from ._peer_set import WithPeers


class PoolMemoryResource(WithPeers, kind=_core.RESOURCE_KIND_POOL):
    """Memory of a pool of Forebay's: by default the one that every framework in the process shares.

    Parameters
    ----------
    device_id : int or object with ``device_id``
        The device, counted from 0.
    pool : Pool, optional
        None: the shared pool.

    Raises
    ------
    ValueError
        If there is no such device.
    TypeError
        If `pool` is no Pool.

    Notes
    -----
    Memory is given and taken back in the order of streams, and what any framework in the process freed can be given
    out. Any thread may use it. The resource keeps the pool.
    """

    __slots__ = ("_pool",)

    _pool: Optional[Pool]

    def __init__(self, device_id: DeviceLike = 0, pool: Optional[Pool] = None) -> None:
        if pool is None:
            pool = Pool.shared()
        if not isinstance(pool, Pool):
            raise TypeError(f"pool is a {type(pool).__name__}: it must be a forebay.Pool, or None for the shared one")
        self._handle = _core.pool_resource_create(pool._handle, as_device(device_id))
        self._pool = pool  # it lives as long as a resource of it

    def _wrapped(self, info: _core.ResourceInfo) -> None:
        self._pool = None

    @property
    def pool(self) -> Optional[Pool]:
        """The pool; None where the library made the resource itself."""
        return self._pool
