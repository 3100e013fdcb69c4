"""Runs the prebuilt adapters in the PyTorch that they are for, without a GPU, on Forebay's host driver.

    python3 tests/adapters/run.py [2.11 ...]      # `make test-adapters TORCH="2.11 ..."`

For each minor version in turn it installs PyTorch's CUDA wheel for Linux from PyPI (0.5 to 1 GB) into
target/test-adapters, without CUDA's libraries: a stand-in for the CUDA runtime (cuda_runtime.c) and stubs for the rest
take their places. In that PyTorch the other versions' adapters must be refused, `forebay.torch.install()` has to take the
prebuilt adapter within a second, and virtuals.cpp calls every virtual function of PyTorch's allocator. Then the adapter is
compiled against that PyTorch's headers. The installation is deleted before the next.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "python" / "forebay" / "torch"), str(ROOT / "packaging")]

import _compiler  # noqa: E402
import adapters  # noqa: E402

SCRATCH = ROOT / "target" / "test-adapters"
LIBRARY = Path(os.environ.get("FOREBAY_LIBRARY", ROOT / "target" / "release" / "libforebay.so")).resolve()
#: What `import torch` needs besides CUDA's libraries.
PACKAGES = ["filelock", "fsspec", "jinja2", "networkx", "numpy", "setuptools<82", "sympy", "typing-extensions"]

#: Runs in that PyTorch.
CHECK = """
import ctypes, sys, time
import torch
import forebay
from forebay.torch import _install

adapter, virtuals, *others = sys.argv[1:]
for other in others:  # cannot be loaded, or refuses
    try:
        _install._call(_install._entry(other), torch.__version__)
    except OSError as error:
        assert "undefined symbol" in str(error), error
    except forebay.torch.InstallError as error:
        assert f"and not for {torch.__version__}" in str(error), error
        print(error)
    else:
        sys.exit(f"{other} was taken")
start = time.perf_counter()
done = forebay.torch.install()
seconds = time.perf_counter() - start
assert (done.mode, done.adapter) == ("adapter", adapter), done
assert seconds < 1, seconds
assert torch.cuda.get_allocator_backend() == "forebay"
print(f"PyTorch {torch.__version__}: install() took {seconds * 1000:.0f} ms")
text = ctypes.create_string_buffer(4096)
if ctypes.CDLL(virtuals).call_virtuals(text, len(text)):
    sys.exit("FAILED " + text.value.decode())
"""

#: The same without a prebuilt adapter: it is compiled against the headers of that PyTorch.
COMPILED = """
import os, torch
import forebay
forebay.torch._build.prebuilt = lambda version: None
done = forebay.torch.install("adapter")
assert done.adapter.startswith(os.environ["XDG_CACHE_HOME"]), done
assert torch.cuda.get_allocator_backend() == "forebay"
print("ok compiled where it is installed")
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed ({done.returncode}): {done.stdout[-3000:]}")
    return done.stdout


def symbols(file: Path, which: str) -> set[str]:
    """The names of a file's dynamic symbols, without versions; weak ones that are not defined are left out."""
    lines = run("nm", "-D", which, file).splitlines()
    found = (line.split()[-2:] for line in lines)
    return {name.split("@")[0] for kind, name in found if kind not in ("w", "v")}


def stand_in(torch: Path, folder: Path, python: Path) -> None:
    """A library in the place of each of CUDA's that PyTorch's name."""
    folder.mkdir(parents=True)
    files = list((torch / "lib").glob("*.so*"))
    loaded = {file.name for file in files}
    needed = {name for file in files for name in re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", file))}
    system = {
        Path(found)
        for found in re.findall(r"(/\S+)", run("ldd", torch / "lib" / "libc10.so"))
        if Path(found).exists() and not found.startswith(str(torch))
    }
    absent = {name for name in needed - loaded if not any(file.name == name for file in system)}
    absent = {name for name in absent if re.match(r"lib(cu|nccl|nv)", name)}
    defined = set().union(*(symbols(file, "--defined-only") for file in [*files, *system, python]))
    for name in ("librt.so.1", "libgomp.so.1", "libutil.so.1"):
        if found := re.search(rf"{re.escape(name)} .*=> (\S+)", run("/sbin/ldconfig", "-p")):
            defined |= symbols(Path(found[1]), "--defined-only")
    wanted = set().union(*(symbols(file, "--undefined-only") for file in files)) - defined
    runtime = (HERE / "cuda_runtime.c").read_text()
    stubs = sorted(name for name in wanted if not re.search(rf"\b{name}\(", runtime))
    (folder / "stubs.c").write_text(
        "void missing(const char *);\n" + "".join(f'void {name}(void) {{ missing("{name}"); }}\n' for name in stubs)
    )
    made = folder / "stand_in.so"
    includes = ["-I", adapters.cuda_headers(), "-I", ROOT / "include"]
    run("cc", "-shared", "-fPIC", "-fno-builtin", "-w", *includes, HERE / "cuda_runtime.c", folder / "stubs.c", "-o", made)
    for name in absent:
        (folder / name).symlink_to(made.name)
    print(f"stand-in for {len(absent)} libraries, {len(stubs)} stubs", flush=True)


def called_of(include: Path) -> None:
    """Ends the program if a virtual function of the headers is not called in virtuals.cpp."""
    source = (HERE / "virtuals.cpp").read_text()
    places = {
        "c10/core/Allocator.h": "struct C10_API Allocator ",
        "c10/core/CachingDeviceAllocator.h": "struct C10_API DeviceAllocator ",
        "c10/cuda/CUDACachingAllocator.h": "class CUDAAllocator ",
    }
    for file, start in places.items():
        text = (include / file).read_text()
        body = text[text.index(start) :].split("\n};")[0]
        names = set(re.findall(r"virtual [^;{]*?\b(\w+)\(", body)) - {"Allocator"}
        assert len(names) > 2, file
        # `clone` calls copy_data; the helpers of virtuals.cpp call the rest.
        if missed := {name for name in names - {"copy_data"} if not re.search(rf"torch\.{name}\(", source)}:
            sys.exit(f"virtuals.cpp does not call {', '.join(sorted(missed))} of {file}")


def check(minor: tuple[int, int]) -> None:
    version, name = _compiler.KNOWN[minor], "torch-{}.{}".format(*minor)
    folder = SCRATCH / name
    print(f"== PyTorch {version}", flush=True)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    run(*pip, *PACKAGES)
    run(*pip, "--no-deps", f"torch=={version}")
    torch = next(folder.glob("lib/python*/site-packages/torch"))
    called_of(torch / "include")
    stand_in(torch, folder / "stand-in", python.resolve())
    cuda, virtuals = adapters.cuda_headers(), folder / "virtuals.so"
    include = ["-I", _compiler.SOURCES, "-I", ROOT / "include", "-isystem", torch / "include", "-isystem", cuda]
    libraries = [torch / "lib" / library for library in _compiler.LIBRARIES]
    # -O0: half of the time.
    run("c++", "-shared", *_compiler.FLAGS, "-O0", *include, HERE / "virtuals.cpp", *libraries, "-o", virtuals)
    built = sorted(adapters.OUTPUT.glob(f"torch-*/{_compiler.file_name()}"), key=lambda path: path.parent.name != name)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder / "stand-in"),
        "PYTHONPATH": str(ROOT / "python"),
        "FOREBAY_LIBRARY": str(LIBRARY),
        "FOREBAY_DRIVER": "host",
        "FOREBAY_PYTHON_FAST": "0",
        "CUDA_MODULE_LOADING": "LAZY",
    }
    environment.pop("FOREBAY_TORCH_MODE", None)
    print(run(python, "-c", CHECK, built[0], virtuals, *built[1:], env=environment), end="", flush=True)
    (folder / "cuda").mkdir()
    (folder / "cuda" / "include").symlink_to(cuda)
    environment.update(CUDA_HOME=str(folder / "cuda"), XDG_CACHE_HOME=str(folder / "cache"))
    print(run(python, "-c", COMPILED, env=environment), end="", flush=True)
    shutil.rmtree(SCRATCH)


def main() -> int:
    named = [tuple(map(int, text.split("."))) for text in sys.argv[1:]]
    for minor in named or _compiler.KNOWN:
        check(minor)
    return 0


if __name__ == "__main__":
    sys.exit(main())
