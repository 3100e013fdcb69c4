"""PyTorch on Forebay's shared pool.

``forebay.torch.install()``, before PyTorch first uses CUDA, and every tensor's memory is Forebay's. For a part of a program
only: ``with forebay.torch.MemPool():``. ``python -m forebay.torch build`` compiles the adapter ahead of time.
"""

from __future__ import annotations

from .._set_module import set_module
from ._build import BuildError, build
from ._install import Installation, InstallError, install, installation
from ._region import MemPool

__all__ = ["BuildError", "InstallError", "Installation", "MemPool", "build", "install", "installation"]

set_module(globals())
