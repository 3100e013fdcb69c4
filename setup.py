"""Builds the shared library and the extension into the Python package. Everything else is in pyproject.toml."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = Path(__file__).resolve().parent
#: What cargo calls them. The extension looks for the library beside itself, under this name.
LIBRARY, EXTENSION = "libforebay.so", "libforebay_core.so"
#: One extension serves every CPython with a lock; one without has no stable ABI, and an extension of its own.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
INSTALLED_EXTENSION = "_core" + (sysconfig.get_config_var("EXT_SUFFIX") if FREE_THREADED else ".abi3.so")


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
    """What to install, by its name in the package: release builds of this source, or the library that FOREBAY_LIBRARY
    names and the extension beside it."""
    if named := os.environ.get("FOREBAY_LIBRARY"):
        library = Path(named).resolve(strict=True)
        extension = library.with_name(EXTENSION)
        if not extension.exists():
            sys.exit(
                f"FOREBAY_LIBRARY is {named}, and there is no {EXTENSION} beside it: `cargo build -p forebay-python` builds it"
            )
    else:
        folder = cargo("forebay")
        cargo("forebay-python", *(["--no-default-features"] if FREE_THREADED else []))
        library, extension = folder / LIBRARY, folder / EXTENSION
    return {LIBRARY: library, INSTALLED_EXTENSION: extension}


def cargo(package: str, *options: str) -> Path:
    """Builds one package of the workspace; the folder of what it made. Built together, dependencies that both have
    would get the features of both, and everything would be built anew."""
    if shutil.which("cargo") is None:
        sys.exit("building forebay needs cargo (https://rustup.rs), or FOREBAY_LIBRARY naming a libforebay.so that was built")
    target = ROOT / "target"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    if FREE_THREADED:
        # .cargo/config.toml keeps PyO3 from asking an interpreter, so it is told.
        config = target / "python" / "pyo3.txt"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"version={sys.version_info.major}.{sys.version_info.minor}\nbuild_flags=Py_GIL_DISABLED\n")
        environment["PYO3_CONFIG_FILE"] = str(config)
    command = ["cargo", "build", "--release", "--lib", "--locked", "--package", package, *options]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return target / "release"


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


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    version=version(),
    options={
        "build": {"build_base": "target/python"},
        "bdist_wheel": {} if FREE_THREADED else {"py_limited_api": "cp310"},
    },
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithLibrary},
)
