"""Numba's modules."""

from __future__ import annotations

from typing import Any

from .._frameworks import need

cuda: Any = need("numba.cuda", "Numba", "numba-cuda[cu13]")
driver: Any = need("numba.cuda.cudadrv.driver", "Numba", "numba-cuda[cu13]")
serialize: Any = need("numba.cuda.serialize", "Numba", "numba-cuda[cu13]")
