"""Compiling the adapter for the installed PyTorch, once: it is kept in the user's cache."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

NAME = "forebay_torch_adapter"
SOURCES = Path(__file__).parent / "adapter"
PACKAGE = Path(__file__).parents[1]
#: Its functions are nobody else's to replace, and calls go straight to where they lead: each allocation makes a dozen of them.
FLAGS = ["-O2", "-fvisibility=hidden", "-fno-plt"]


class BuildError(RuntimeError):
    """The adapter cannot be compiled here: something that it takes is missing, or the compiler failed."""


def build(*, verbose: bool = False) -> str:
    """The path of the adapter for the installed PyTorch; compiles it (under a minute) unless that was done before.

    It is kept in ``$XDG_CACHE_HOME/forebay``, by default ``~/.cache/forebay``, under a name that changes with PyTorch and with
    the sources. Several processes may build at once; each sees a whole file or none.

    Raises
    ------
    BuildError
        If there is no C++ compiler, no ``ninja``, no CUDA header, or the compiler fails.
    """
    header = _forebay_header()
    place = _cache() / _key(header) / f"{NAME}.so"
    if place.exists():
        return str(place)
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        raise BuildError(f"there is no C++ compiler {compiler}: install g++, or let CXX name one")
    includes = [str(header.parent), str(_cuda_headers())]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            _compile(includes, scratch, verbose)
            # A rename keeps the file's identity: what was loaded for the check is what will be loaded.
            os.replace(os.path.join(scratch, f"{NAME}.so"), place)
    except OSError as error:
        raise BuildError(f"the adapter cannot be written to {place.parent}: {error}") from error
    return str(place)


def _compile(includes: list[str], scratch: str, verbose: bool) -> None:
    from torch.utils import cpp_extension

    try:
        cpp_extension.load(
            name=NAME,
            sources=[str(source) for source in sorted(SOURCES.glob("*.cpp"))],
            extra_cflags=FLAGS,
            extra_ldflags=["-lc10_cuda", "-ltorch_cuda", "-pthread"],
            extra_include_paths=includes,
            build_directory=scratch,
            verbose=verbose,
            # The headers are named above, and nothing of the toolkit is linked: PyTorch has loaded the runtime.
            with_cuda=False,
            is_python_module=False,
        )
    except (RuntimeError, OSError) as error:
        raise BuildError(str(error)) from error


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else Path.home() / ".cache"


def _key(header: Path) -> str:
    import torch

    digest = hashlib.sha256(" ".join([torch.__version__, *FLAGS]).encode())
    for source in [header, *sorted(SOURCES.glob("*.*"))]:
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return os.path.join("forebay", f"torch-{torch.__version__}-{digest.hexdigest()[:16]}")


def _forebay_header() -> Path:
    """Beside this package where it is installed, in the source tree where it is not."""
    places = [PACKAGE / "include" / "forebay.h", PACKAGE.parents[1] / "include" / "forebay.h"]
    for place in places:
        if place.exists():
            return place
    raise BuildError(f"forebay.h is not at {' nor at '.join(map(str, places))}: install the package again")


def _cuda_headers() -> Path:
    """The toolkit's headers, or those of the wheels that PyTorch itself depends on."""
    from torch.utils import cpp_extension

    places = [Path(cpp_extension.CUDA_HOME) / "include"] if cpp_extension.CUDA_HOME else []
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations if wheels else None) or []:
        places += [Path(folder) / "cu13" / "include", Path(folder) / "cuda_runtime" / "include"]
    for place in places:
        if (place / "cuda_runtime_api.h").exists():
            return place
    searched = f" (not in {', '.join(map(str, places))})" if places else ""
    raise BuildError(
        f"CUDA's header cuda_runtime_api.h is missing{searched}: install the CUDA toolkit, let CUDA_HOME name it, or "
        "`pip install nvidia-cuda-runtime`"
    )
