"""CuPy on Forebay.

``install()`` makes every CuPy array memory of the shared pool, allocated and freed in the order of CuPy's current
stream, without Python in between. Beside it: `MemoryAsyncPool` on the driver's pools, and `PinnedMemoryPool` on pinned
memory.
"""

from __future__ import annotations

from .._set_module import set_module
from ._async_pool import MemoryAsyncPool
from ._install import install, pool, uninstall
from ._pinned import PinnedMemoryPool
from ._pool import MemoryPool

__all__ = ["MemoryAsyncPool", "MemoryPool", "PinnedMemoryPool", "install", "pool", "uninstall"]

set_module(globals())
