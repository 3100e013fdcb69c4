"""Where the compilers and the libraries of the contenders are on this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Missing(Exception):
    """Something that a program needs is not on this machine."""


def package(name: str) -> Path:
    """The folder of an installed Python package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise Missing(f"no Python package {name}")
    return Path(next(iter(spec.submodule_search_locations)))


def cuda_home() -> Path:
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), nvcc and str(Path(nvcc).resolve().parents[1]), "/usr/local/cuda"]
    for place in filter(None, places):
        if (Path(place) / "include" / "cuda_runtime_api.h").exists():
            return Path(place)
    raise Missing("no CUDA toolkit: set CUDA_HOME")


def runtime_folder(cuda: Path) -> Path:
    """Where the CUDA runtime lies, as a library of its own: PyTorch uses that, and the program must use the same."""
    places = [cuda / "lib64", cuda / "lib", cuda / "targets/x86_64-linux/lib"]
    try:
        places.append(package("nvidia") / "cu13/lib")
    except Missing:
        pass
    for place in places:
        if (place / "libcudart.so.13").exists():
            return place
    raise Missing(f"no libcudart.so.13 in {', '.join(map(str, places))}")


def forebay_library() -> Path:
    library = Path(os.environ.get("FOREBAY_LIBRARY", ROOT / "target/release/libforebay.so")).resolve()
    if not library.exists():
        raise Missing(f"no {library}: build it or set FOREBAY_LIBRARY")
    return library
