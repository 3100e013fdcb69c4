"""Builds the shared library and the extension into the Python package. Everything else is in pyproject.toml."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
NAME = "libforebay.so"
#: What cargo calls the extension, and what it is called in the package.
EXTENSION, INSTALLED_EXTENSION = "libforebay_fast.so", "_fast.abi3.so"


def version() -> str:
    found = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    if found is None:
        sys.exit("Cargo.toml has no line with the version")
    return found.group(1)


def adapter_name() -> str:
    """Of the adapters for PyTorch that were compiled from these sources."""
    spec = importlib.util.spec_from_file_location("_compiler", ROOT / "python" / "forebay" / "torch" / "_compiler.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.file_name()


def build() -> dict[str, Path]:
    """What to install, by its name in the package: release builds of this source, or the library that FOREBAY_LIBRARY names,
    with the extension if that lies beside it. The package works without the extension, only slower."""
    named = os.environ.get("FOREBAY_LIBRARY")
    if named:
        library = Path(named).resolve(strict=True)
        extension = library.parent / EXTENSION
        return {NAME: library, **({INSTALLED_EXTENSION: extension} if extension.exists() else {})}
    if shutil.which("cargo") is None:
        sys.exit("building forebay needs cargo (https://rustup.rs), or FOREBAY_LIBRARY naming a libforebay.so that was built")
    target = ROOT / "target"
    # One by one: built together, dependencies that both have get the features of both, and everything is built anew.
    for package in ("forebay", "forebay-python"):
        subprocess.run(
            ["cargo", "build", "--release", "--lib", "--locked", "--package", package],
            cwd=ROOT,
            env={**os.environ, "CARGO_TARGET_DIR": str(target)},
            check=True,
        )
    return {NAME: target / "release" / NAME, INSTALLED_EXTENSION: target / "release" / EXTENSION}


class BuildWithLibrary(build_py):
    """Adds the library and the extension. An editable install uses those in target/release, and copies nothing."""

    installed: list[str] = []

    def run(self) -> None:
        built = build()
        editable = getattr(self, "editable_mode", False)
        if not editable:  # what an earlier build left would be installed too
            shutil.rmtree(Path(self.build_lib) / "forebay", ignore_errors=True)
        super().run()
        if editable:
            return
        self.installed = [os.path.join(self.build_lib, "forebay", name) for name in built]
        for source, installed in zip(built.values(), self.installed):
            shutil.copyfile(source, installed)
            os.chmod(installed, 0o755)
            if shutil.which("strip"):
                subprocess.run(["strip", "--strip-unneeded", installed], check=True)
        # The adapters for PyTorch, as far as `make adapters` was run. Without one it is compiled on the user's machine.
        adapters = ROOT / "target" / "adapters"
        for source in sorted(adapters.glob(f"torch-*/{adapter_name()}")):
            installed = Path(self.build_lib) / "forebay" / "torch" / "adapters" / source.relative_to(adapters)
            installed.parent.mkdir(parents=True, exist_ok=True)
            self.installed.append(str(shutil.copyfile(source, installed)))
        # What is compiled on the user's machine needs the declarations.
        include = os.path.join(self.build_lib, "forebay", "include")
        os.makedirs(include, exist_ok=True)
        for name in ("forebay.h", "forebay.hpp"):
            self.installed.append(shutil.copyfile(ROOT / "include" / name, os.path.join(include, name)))

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), *self.installed]


class PlatformWheel(bdist_wheel):
    """Of this platform, and of no version of Python: the extension is for the stable ABI, and not needed where that is not."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    version=version(),
    options={"build": {"build_base": "target/python"}},
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
)
