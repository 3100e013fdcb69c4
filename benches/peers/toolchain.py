"""Builds the contenders' programs."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from contenders import Contender
from places import HERE, ROOT, Missing, cuda_home, forebay_library, package, runtime_folder


class Toolchain:
    """Compiles into one folder; what is there already and made of the same text is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.cuda = cuda_home()
        self.cuda_libraries = runtime_folder(self.cuda)
        digest = hashlib.sha256()
        for source in sorted([*HERE.rglob("*.h"), *HERE.glob("*.c*"), ROOT / "include/forebay.h"]):
            digest.update(source.read_bytes())
        self.sources = digest.hexdigest()

    def build(self, contenders: list[Contender]) -> dict[str, Path | str]:
        """Every program of the contenders at once, by its name: its path, or why there is none."""
        kernels = self.folder / "kernels.o"
        for name in ("libforebay.so", "libforebay.so.0.1"):  # what the linker and what the loader looks for
            link = self.folder / name
            link.unlink(missing_ok=True)
            link.symlink_to(forebay_library())
        programs = {contender.program: contender for contender in contenders}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            kernel = pool.submit(self.kernels, kernels)
            objects = {name: pool.submit(self.attempt, self.compile, contender) for name, contender in programs.items()}
            loader = pool.submit(self.attempt, self.loader)
            kernel.result()
            built = {name: done.result() for name, done in objects.items()}
            linked = {
                name: pool.submit(self.attempt, self.link, programs[name], made, kernels)
                for name, made in built.items() if isinstance(made, Path)
            }
            built.update({name: done.result() for name, done in linked.items()})
            built["load"] = loader.result()
        return built

    def attempt(self, step: Callable[..., Path], *arguments: object) -> Path | str:
        """What the step makes, or why it does not."""
        try:
            return step(*arguments)
        except (Missing, subprocess.SubprocessError, OSError) as error:
            return str(error)

    def kernels(self, out: Path) -> None:
        nvcc = shutil.which("nvcc") or str(self.cuda / "bin/nvcc")
        self.run([nvcc, "-std=c++17", "-O2", f"-arch={os.environ.get('PEERS_ARCH', 'native')}", "-c", str(HERE / "kernels.cu"),
                  "-o", str(out)], out)

    def compile(self, contender: Contender) -> Path:
        out = self.folder / f"{contender.program}.o"
        words = [*self.compiler(), "-std=c++20", "-O2", "-Wall", "-Wextra", f"-I{ROOT / 'include'}"]
        words += [f"-D{name}" for name in contender.defines]
        words += [f'-DCONTENDER_HEADER="contenders/{contender.header}.h"']
        for include in self.includes(contender):
            words += ["-isystem", str(include)]
        self.run([*words, "-c", str(HERE / "main.cpp"), "-o", str(out)], out)
        return out

    def link(self, contender: Contender, made: Path, kernels: Path) -> Path:
        out = self.folder / contender.program
        folders, names = self.libraries(contender)
        words = [*self.compiler(), str(made), str(kernels), "-o", str(out), "-pthread"]
        for folder in folders:
            # Old tags: the search path is also for what the libraries need themselves.
            words += [f"-L{folder}", f"-Wl,-rpath,{folder}"]
        words += ["-Wl,--disable-new-dtags", "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed", *names]
        self.run(words, out)
        return out

    def loader(self) -> Path:
        out = self.folder / "load"
        self.run([*self.compiler(), "-O2", str(HERE / "load.cpp"), "-o", str(out), "-ldl"], out)
        return out

    def compiler(self) -> list[str]:
        return shlex.split(os.environ.get("CXX", "g++"))

    def includes(self, contender: Contender) -> list[Path]:
        found = []
        if "rmm" in contender.needs:
            rmm = package("librmm") / "include"
            found += [rmm / "rapids", rmm, package("rapids_logger") / "include"]
        if "torch" in contender.needs:
            found.append(package("torch") / "include")
        return [*found, self.cuda / "include"]

    def libraries(self, contender: Contender) -> tuple[list[Path], list[str]]:
        folders, names = [], []
        if "forebay" in contender.needs:
            forebay_library()
            folders.append(self.folder)
            names.append("-lforebay")
        if "rmm" in contender.needs:
            folders += [package("librmm") / "lib64", package("rapids_logger") / "lib64"]
            names += ["-lrmm", "-lrapids_logger"]
        if "torch" in contender.needs:
            folders.append(package("torch") / "lib")
            names += ["-lc10_cuda", "-lc10"]
        if "torch_cuda" in contender.needs:
            names += ["-ltorch_cuda", "-ltorch_cpu"]
        return [*folders, self.cuda_libraries], [*names, "-l:libcudart.so.13", "-ldl"]

    def loaded(self) -> dict[str, Path]:
        """The library that each contender's user has loaded, where it is one library."""
        found = {"forebay": forebay_library()}
        for name, owner, path in (("rmm_pool", "librmm", "lib64/librmm.so"), ("torch", "torch", "lib/libc10_cuda.so")):
            try:
                found[name] = package(owner) / path
            except Missing:
                continue
        return found

    def run(self, words: list[str], out: Path) -> None:
        """Runs a command that makes `out`, unless that was made before by the same command from the same text."""
        stamp = out.with_name(out.name + ".made")
        wanted = hashlib.sha256("\0".join([self.sources, *words]).encode()).hexdigest()
        if out.exists() and stamp.exists() and stamp.read_text() == wanted:
            return
        stamp.unlink(missing_ok=True)
        done = subprocess.run(words, capture_output=True, text=True, timeout=150)
        if done.returncode != 0:
            (out.with_name(out.name + ".log")).write_text(done.stderr)
            first = next((line for line in done.stderr.splitlines() if "error" in line or "undefined" in line), done.stderr[:200])
            first = first[max(first.find("undefined reference"), 0) :]
            raise Missing(f"does not build: {first.strip()[:300]}")
        stamp.write_text(wanted)
