"""Memory of Forebay's own pools."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Optional

from .. import _library
from .. import _structs as s
from .._arguments import as_device
from .._errors import check
from .._pool import Pool
from ..typing import DeviceLike
from ._peers import WithPeers


class PoolMemoryResource(WithPeers, kind=s.ResourceKind.POOL):
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
    """

    __slots__ = ("_pool",)

    _pool: Optional[Pool]

    def __init__(self, device_id: DeviceLike = 0, pool: Optional[Pool] = None) -> None:
        if pool is None:
            pool = Pool.shared()
        if not isinstance(pool, Pool):
            raise TypeError(f"pool is a {type(pool).__name__}: it must be a forebay.Pool, or None for the shared one")
        out = c_void_p()
        check(_library.forebay_pool_resource_create(pool._handle, as_device(device_id), out))
        self._handle, self._pool = out.value, pool  # the pool lives as long as a resource of it

    def _wrapped(self, info: s.ResourceInfo) -> None:
        self._pool = None

    @property
    def pool(self) -> Optional[Pool]:
        """The pool; None where the library made the resource itself."""
        return self._pool
