"""Builds the shared library and puts it into the Python package. Everything else is in pyproject.toml."""

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


def version() -> str:
    found = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    if found is None:
        sys.exit("Cargo.toml has no line with the version")
    return found.group(1)


def library() -> Path:
    """The library to install: the one that FOREBAY_LIBRARY names, else a release build of this source."""
    named = os.environ.get("FOREBAY_LIBRARY")
    if named:
        return Path(named).resolve(strict=True)
    if shutil.which("cargo") is None:
        sys.exit("building forebay needs cargo (https://rustup.rs), or FOREBAY_LIBRARY naming a libforebay.so that was built")
    target = ROOT / "target"
    subprocess.run(
        ["cargo", "build", "--release", "--lib", "--locked"],
        cwd=ROOT,
        env={**os.environ, "CARGO_TARGET_DIR": str(target)},
        check=True,
    )
    return target / "release" / NAME


class BuildWithLibrary(build_py):
    """Adds the library to the package. An editable install uses the one in target/release, and copies nothing."""

    def run(self) -> None:
        built = library()
        editable = getattr(self, "editable_mode", False)
        if not editable:  # what an earlier build left would be installed too
            shutil.rmtree(Path(self.build_lib) / "forebay", ignore_errors=True)
        super().run()
        if editable:
            return
        installed = Path(self.build_lib) / "forebay" / NAME
        shutil.copyfile(built, installed)
        installed.chmod(0o755)
        # What is compiled on the user's machine needs the C declarations.
        header = installed.parent / "include" / "forebay.h"
        header.parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / "include" / "forebay.h", header)
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", str(installed)], check=True)

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), os.path.join(self.build_lib, "forebay", NAME)]


class PlatformWheel(bdist_wheel):
    """The library is of this platform, and of no version of Python: the package calls it through ctypes."""

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
