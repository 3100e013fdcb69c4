"""Compiling the adapter against given headers.

It imports nothing of Forebay and PyTorch: packaging/adapters.py and setup.py use it too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

#: The minor versions of PyTorch whose interface was checked, and the release whose headers the prebuilt adapters are
#: compiled against.
KNOWN = {
    (2, 9): "2.9.1",
    (2, 10): "2.10.0",
    (2, 11): "2.11.0",
    (2, 12): "2.12.1",
    (2, 13): "2.13.0",
    (2, 14): "2.14.1",
    (2, 15): "2.15.0",
}

SOURCES = Path(__file__).parent / "adapter"
PACKAGE = Path(__file__).parents[1]
FLAGS = [
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    # Each allocation calls a dozen functions of other libraries: without a jump through the PLT.
    "-fno-plt",
    "-D_GLIBCXX_USE_CXX11_ABI=1",
    # A generated header that only Linux's CUDA wheels have; it matters on Windows alone.
    "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE",
]
#: Libraries that PyTorch has loaded when the adapter is. Naming them in the adapter lets the loader find their symbols;
#: empty ones with their names are enough to link against.
LIBRARIES = ["libc10.so", "libc10_cuda.so", "libtorch_cuda.so"]


class BuildError(RuntimeError):
    """The adapter cannot be compiled here: something that it takes is missing, or the compiler failed."""


def forebay_header() -> Path:
    """Beside the package where it is installed, in the source tree where it is not."""
    places = [PACKAGE / "include" / "forebay.h", PACKAGE.parents[1] / "include" / "forebay.h"]
    for place in places:
        if place.exists():
            return place
    raise BuildError(f"forebay.h is not at {' nor at '.join(map(str, places))}: install the package again")


def digest() -> str:
    """Of all that an adapter is compiled from, but for PyTorch. File names have it, so that no stale one is used."""
    found = hashlib.sha256(" ".join(FLAGS).encode())
    for source in [forebay_header(), *sorted(SOURCES.glob("*.*"))]:
        found.update(source.name.encode())
        found.update(source.read_bytes())
    return found.hexdigest()[:16]


def file_name() -> str:
    """The name of an adapter that is compiled from these sources."""
    return f"forebay_torch_adapter-{digest()}.so"


def compile_adapter(output: Path, torch_include: Path, cuda_include: Path, verbose: bool = False) -> None:
    """Writes the adapter for the PyTorch with these headers to ``output``; whole, or not at all.

    Raises
    ------
    BuildError
        If there is no C++ compiler, it fails, or the file cannot be written.
    """
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        raise BuildError(f"there is no C++ compiler {compiler}: install g++, or let CXX name one")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
            stubs = [Path(scratch) / name for name in LIBRARIES]
            for stub in stubs:
                _run([compiler, "-shared", f"-Wl,-soname,{stub.name}", "-x", "c++", os.devnull, "-o", str(stub)], "", verbose)
            made = Path(scratch) / output.name
            command = [compiler, "-shared", "-s", *FLAGS, "-I", str(SOURCES), "-I", str(forebay_header().parent)]
            # The headers' own warnings are not shown.
            command += ["-isystem", str(torch_include), "-isystem", str(cuda_include), "-Wall", "-Wextra"]
            command += ["-x", "c++", "-", "-x", "none", "-Wl,--no-as-needed", *map(str, stubs), "-pthread", "-o", str(made)]
            # One translation unit: PyTorch's headers are read once.
            unit = "".join(f'#include "{source.name}"\n' for source in sorted(SOURCES.glob("*.cpp")))
            _run(command, unit, verbose)
            os.replace(made, output)
    except OSError as error:
        raise BuildError(f"the adapter cannot be written to {output.parent}: {error}") from error


def _run(command: list[str], text: str, verbose: bool) -> None:
    if verbose:
        print(" ".join(command), flush=True)
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if verbose:
        print(done.stderr, end="", flush=True)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise BuildError("the compiler failed: " + "\n".join(errors[:5] or done.stderr.splitlines()[-5:]))
