"""Numba on Forebay: an external memory manager.

``install()`` before the first use of CUDA in Numba, or the variable ``NUMBA_CUDA_MEMORY_MANAGER=forebay.numba``.
"""

from __future__ import annotations

from .._frameworks import probe
from .._pool import shared_pool
from .._set_module import set_module
from ._connect import cuda, driver
from ._ipc import ForebayIpcHandle
from ._manager import ForebayMemoryManager

__all__ = ["ForebayIpcHandle", "ForebayMemoryManager", "install"]

#: What Numba looks for in the module that ``NUMBA_CUDA_MEMORY_MANAGER`` names.
_numba_memory_manager = ForebayMemoryManager


def install() -> None:
    """Makes Numba allocate from the shared pool. Again is harmless.

    Raises
    ------
    RuntimeError
        If Numba has a CUDA context already, whose memory is another manager's; if there is no usable driver; if this is
        a forked child. Numba is then as it was.
    """
    probe(shared_pool())
    for device in driver.driver.list_devices():
        context = device.primary_context
        if context is not None and not isinstance(context.memory_manager, ForebayMemoryManager):
            raise RuntimeError(
                f"Numba has a CUDA context on device {device.id}, with memory of {type(context.memory_manager).__name__}: call "
                "forebay.numba.install() before Numba uses CUDA, or set NUMBA_CUDA_MEMORY_MANAGER=forebay.numba"
            )
    cuda.set_memory_manager(ForebayMemoryManager)


set_module(globals())
