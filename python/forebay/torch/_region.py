"""Forebay for a part of a program: the allocations of a thread inside a ``with``."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Optional

from .. import _core
from . import _base
from ._install import _torch, installation


class MemPool:
    """Inside ``with pool:``, the calling thread's tensors on one device have memory of Forebay's.

    With PyTorch's own allocator installed, only they have: PyTorch then keeps its cache above Forebay for this pool. After
    :func:`forebay.torch.install` all tensors have, and these have a private part of the pool, which is given back to everybody
    when this object and its tensors are gone. One pool may be entered again, also inside itself.

    Parameters
    ----------
    device : int or torch.device, optional
        The device; by default the one that is current when the pool is first entered.

    Raises
    ------
    InstallError
        When entered, if PyTorch is missing, without CUDA or of an unknown version.

    Examples
    --------
    >>> pool = forebay.torch.MemPool()
    >>> with pool:
    ...     activations = torch.empty(1 << 20, device="cuda")
    """

    def __init__(self, device: Any = None) -> None:
        self._device = device
        self._index: Optional[int] = None
        #: torch.cuda.MemPool, where there is one.
        self._pool: Any = None
        # PyTorch's object for Forebay, which the pool refers to.
        self._allocator: Any = None
        self._id: Optional[tuple[int, int]] = None
        # What each thread has entered: PyTorch takes a pool once.
        self._entered = threading.local()

    @property
    def id(self) -> Optional[tuple[int, int]]:
        """The pool's id, as snapshots have it; None before it was entered."""
        return self._id

    def __enter__(self) -> MemPool:
        depth = getattr(self._entered, "depth", 0)
        if depth == 0:
            torch = _torch()
            self._make(torch)
            region = torch.cuda.use_mem_pool(self._pool, self._index) if self._pool is not None else self._route(torch)
            region.__enter__()
            self._entered.region = region
        self._entered.depth = depth + 1
        return self

    def __exit__(self, *exception: Any) -> None:
        self._entered.depth -= 1
        if self._entered.depth == 0:
            self._entered.region.__exit__(*exception)
            del self._entered.region

    def _make(self, torch: Any) -> None:
        if self._id is not None:
            return
        torch.cuda.init()
        self._index = torch.cuda._utils._get_device_index(self._device, optional=True)
        known = installation()
        with torch.cuda.device(self._index):
            if known is None:
                self._allocator = _base.pluggable(torch)
                self._pool = torch.cuda.MemPool(self._allocator.allocator())
            elif known.mode == "adapter":
                self._pool = torch.cuda.MemPool()
            else:
                self._id = torch.cuda.graph_pool_handle()
                _core.torch_hold_pool(self._index, *self._id)
        if self._pool is not None:
            self._id = self._pool.id

    @contextlib.contextmanager
    def _route(self, torch: Any) -> Any:
        """The stock class has no pools of PyTorch's own kind; what graphs use, it passes on."""
        torch._C._cuda_beginAllocateCurrentThreadToPool(self._index, self._id)
        try:
            yield
        finally:
            torch._C._cuda_endAllocateToPool(self._index, self._id)
            torch._C._cuda_releasePool(self._index, self._id)

    def __del__(self, _release: Any = _core.torch_release_pool) -> None:
        if self._id is not None and self._pool is None:
            _release(self._index, *self._id)
