"""Compiles the adapters for PyTorch that a wheel carries: one for each minor version, or for those that are named.

    python3 packaging/adapters.py [2.11 ...]              # into target/adapters/torch-2.N/
    python3 packaging/adapters.py --fetch [2.11 ...]      # downloads their headers only

Needs a C++ compiler and pip; no GPU, no PyTorch. The headers are those of PyTorch's wheels for macOS, which are the
smallest: what the adapter includes is the same on every platform.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python" / "forebay" / "torch"))

import _compiler  # noqa: E402

HEADERS = ROOT / "target" / "torch"
OUTPUT = ROOT / "target" / "adapters"
TORCH_PLATFORMS = ["macosx_11_0_arm64", "macosx_14_0_arm64"]
#: The adapter calls functions of CUDA's runtime that are the same in every version from 11 on.
CUDA = [("nvidia-cuda-runtime", "13.0.96"), ("nvidia-cuda-crt", "13.0.88")]
CUDA_PLATFORMS = ["manylinux2014_x86_64", "manylinux_2_27_x86_64"]
#: What of PyTorch's headers is kept: all that the adapter includes is there.
FOLDERS = ("c10/", "torch/headeronly/", "torch/csrc/cuda/", "torch/csrc/api/include/torch/version.h")


def download(requirement: str, platforms: list[str], into: Path) -> list[Path]:
    """The wheels of one requirement."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", "3.12", "--dest", str(into), requirement]
    for platform in platforms:
        command += ["--platform", platform]
    subprocess.run(command, check=True)
    return list(into.glob("*.whl"))


def unpack(folder: Path, requirement: str, platforms: list[str], prefix: str, kept: tuple[str, ...]) -> Path:
    """The folder with the headers of a wheel, downloaded unless it is there."""
    if folder.exists():
        return folder
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        (wheel,) = download(requirement, platforms, scratch / "wheel")
        with zipfile.ZipFile(wheel) as files:
            names = [name for name in files.namelist() if name.startswith(tuple(prefix + one for one in kept))]
            files.extractall(scratch, names)
        os.replace(scratch / prefix, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def torch_headers(minor: tuple[int, int]) -> Path:
    version = _compiler.KNOWN[minor]
    return unpack(HEADERS / f"torch-{version}", f"torch=={version}", TORCH_PLATFORMS, "torch/include/", FOLDERS)


def cuda_headers() -> Path:
    """CUDA's, from two wheels."""
    folders = [
        unpack(HEADERS / f"{name}-{version}", f"{name}=={version}", CUDA_PLATFORMS, "nvidia/cu13/include/", ("",))
        for name, version in CUDA
    ]
    for source in (path for path in folders[1].rglob("*") if path.is_file()):
        target = folders[0] / source.relative_to(folders[1])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return folders[0]


def build(minor: tuple[int, int], cuda: Path) -> str:
    name = "torch-{}.{}".format(*minor)
    output = OUTPUT / name / _compiler.file_name()
    if not output.exists():
        shutil.rmtree(output.parent, ignore_errors=True)
        _compiler.compile_adapter(output, torch_headers(minor), cuda)
    return f"{name}: {output.relative_to(ROOT)}, {output.stat().st_size} bytes"


def main() -> int:
    fetch = sys.argv[1:2] == ["--fetch"]
    texts = sys.argv[2 if fetch else 1 :] or ["{}.{}".format(*minor) for minor in _compiler.KNOWN]
    minors = [tuple(map(int, text.split("."))) for text in texts]
    if unknown := [text for text, minor in zip(texts, minors) if minor not in _compiler.KNOWN]:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join('{}.{}'.format(*minor) for minor in _compiler.KNOWN)}")
        return 2
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        try:
            cuda = cuda_headers()
            list(workers.map(torch_headers, minors))
        except (subprocess.CalledProcessError, OSError, ValueError) as error:
            print(f"the headers cannot be downloaded: {error}", file=sys.stderr)
            return 1
        if fetch:
            return 0
        try:
            for line in workers.map(lambda minor: build(minor, cuda), minors):
                print(line, flush=True)
        except _compiler.BuildError as error:
            print(f"the adapters were not built: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
