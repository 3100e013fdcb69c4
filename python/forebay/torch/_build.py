"""The adapter for the installed PyTorch: prebuilt, or compiled here, once, into the user's cache."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import Optional

from .. import _core
from . import _compiler
from ._compiler import KNOWN, BuildError

__all__ = ["BuildError", "build", "compiled", "minor_version", "prebuilt"]


def minor_version(version: str) -> Optional[tuple[int, int]]:
    """The first two numbers of ``torch.__version__``, or None if it does not begin with them."""
    found = re.match(r"(\d+)\.(\d+)\.", version)
    return (int(found[1]), int(found[2])) if found else None


def prebuilt(version: str) -> Optional[str]:
    """The path of the prebuilt adapter for this ``torch.__version__``, or None.

    It is searched in the package and beside the library. Only releases have one: the interface of a pre-release may be
    another's.
    """
    minor = minor_version(version)
    if minor not in KNOWN or re.fullmatch(r"\d+\.\d+\.\d+(\+.*)?", version) is None:
        return None
    library = Path(_core.library_path()).parent
    name = Path("adapters", "torch-{}.{}".format(*minor), _compiler.file_name())
    # The second is where the library is, the third where `make adapters` puts them for the library of a checkout.
    for folder in (Path(__file__).parent, library, library.parent):
        if (folder / name).exists():
            return str(folder / name)
    return None


def build(*, verbose: bool = False) -> str:
    """The path of the adapter for the installed PyTorch: prebuilt, or else compiled here, in about ten seconds.

    That is kept in ``$XDG_CACHE_HOME/forebay``, by default ``~/.cache/forebay``, under a name that changes with PyTorch
    and with the sources. Several processes may build at once; each sees a whole file or none.

    Raises
    ------
    BuildError
        If there is no C++ compiler, no CUDA header, or the compiler fails.
    """
    import torch

    return prebuilt(torch.__version__) or compiled(verbose)


def compiled(verbose: bool = False) -> str:
    """An adapter that was compiled here, now or before."""
    import torch

    named = os.environ.get("XDG_CACHE_HOME")
    cache = Path(named) if named else Path.home() / ".cache"
    place = cache / "forebay" / f"torch-{torch.__version__}" / _compiler.file_name()
    if not place.exists():
        _compiler.compile_adapter(place, Path(torch.__file__).parent / "include", _cuda_headers(), verbose)
    return str(place)


def _cuda_headers() -> Path:
    """The toolkit's headers, or those of the wheels that PyTorch itself depends on."""
    places = [Path(os.environ[name]) / "include" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if nvcc := shutil.which("nvcc"):
        places.append(Path(nvcc).parents[1] / "include")
    places.append(Path("/usr/local/cuda/include"))
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations if wheels else None) or []:
        places += [Path(folder) / "cu13" / "include", Path(folder) / "cuda_runtime" / "include"]
    for place in places:
        if (place / "cuda_runtime_api.h").exists():
            return place
    raise BuildError(
        f"CUDA's header cuda_runtime_api.h is not in {', '.join(map(str, places))}: install the CUDA toolkit, let CUDA_HOME "
        "name it, or `pip install nvidia-cuda-runtime`"
    )
