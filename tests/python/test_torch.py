"""forebay.torch without a GPU: what it refuses, base mode's figures on the host driver, and the adapter driven from C++."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from forebay import _pool
from forebay.torch import BuildError, InstallError, _base, _build, _install
from support import MIB, Case, forebay

HERE = Path(__file__).parent
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")


class FakeTorch:
    """As much of PyTorch as `install` looks at before it changes anything."""

    __version__ = "2.11.0+cu130"

    class version:
        cuda = "13.0"

    class cuda:
        initialized = forked = False

        @classmethod
        def is_initialized(cls):
            return cls.initialized

        @classmethod
        def _is_in_bad_fork(cls):
            return cls.forked

    class _C:
        backend = "native"

        @classmethod
        def _cuda_getAllocatorBackend(cls):
            return cls.backend


class Install(Case):
    def setUp(self):
        super().setUp()
        self.torch = type("torch", (FakeTorch,), {})
        self.torch.cuda = type("cuda", (FakeTorch.cuda,), {})
        self.torch._C = type("_C", (FakeTorch._C,), {})
        patches = [mock.patch.dict(sys.modules, {"torch": self.torch}), mock.patch.object(_install, "_installation", None)]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def test_modes(self):
        with self.refused(ValueError, "mode", "'fast'", "'auto'", "'adapter'", "'base'"):
            forebay.torch.install("fast")
        with mock.patch.dict(os.environ, FOREBAY_TORCH_MODE="quick"), self.refused(ValueError, "FOREBAY_TORCH_MODE", "quick"):
            forebay.torch.install()

    def test_versions(self):
        for version in ("1.13.0", "9.1.0", "nightly"):
            self.torch.__version__ = version
            with self.subTest(version=version), self.refused(InstallError, version, "2.11"):
                forebay.torch.install()
        self.torch.__version__ = "2.11.1"
        self.torch.version = type("version", (), {"cuda": None})
        with self.refused(InstallError, "without CUDA"):
            forebay.torch.install()

    def test_after_cuda(self):
        self.torch.cuda.initialized = True
        with self.refused(InstallError, "already", "first"):
            forebay.torch.install()

    def test_another_allocator(self):
        self.torch._C.backend = "pluggable"
        with self.refused(InstallError, "pluggable", "change_current_allocator"):
            forebay.torch.install()

    def test_forked(self):
        self.torch.cuda.forked = True
        with self.refused(InstallError, "fork", "spawn"):
            forebay.torch.install()

    @mock.patch.dict(os.environ)
    def test_auto_says_why_it_is_base(self):
        os.environ.pop("NCCL_GRAPH_REGISTER", None)
        changed = []
        with mock.patch.object(_build, "build", side_effect=BuildError("no compiler")):
            with self.refused(InstallError, "cannot be built", "no compiler"):
                forebay.torch.install("adapter")
            with mock.patch.object(_base, "install", changed.append):
                done = forebay.torch.install()
        self.assertEqual((done.mode, done.reason, changed), ("base", "no compiler", [self.torch]))
        self.assertEqual(os.environ["NCCL_GRAPH_REGISTER"], "0")
        self.assertIs(forebay.torch.installation(), done)
        with self.refused(InstallError, "before", "base", "once"):
            forebay.torch.install()

    @mock.patch.dict(os.environ, NCCL_GRAPH_REGISTER="1")
    def test_a_user_who_lets_nccl_register_graphs_is_told(self):
        with mock.patch.object(_base, "install"), self.assertWarnsRegex(RuntimeWarning, "NCCL_GRAPH_REGISTER is '1'") as warned:
            forebay.torch.install("base")
        self.assertEqual((os.environ["NCCL_GRAPH_REGISTER"], warned.filename), ("1", __file__))

    @mock.patch.dict(os.environ)
    def test_a_failed_install_leaves_no_trace(self):
        os.environ.pop("NCCL_GRAPH_REGISTER", None)
        with mock.patch.object(_base, "install", side_effect=RuntimeError("refused")), self.assertRaises(RuntimeError):
            forebay.torch.install("base")
        self.assertIsNone(forebay.torch.installation())
        self.assertNotIn("NCCL_GRAPH_REGISTER", os.environ)


class Figures(Case):
    """Base mode's answers, from what the C hooks were asked for."""

    def allocate(self, size):
        from ctypes import c_int, c_ssize_t, c_void_p

        malloc, free = (forebay._library._opened[name] for name in ("forebay_torch_malloc", "forebay_torch_free"))
        malloc.argtypes, malloc.restype = [c_ssize_t, c_int, c_void_p], c_void_p
        free.argtypes, free.restype = [c_void_p, c_ssize_t, c_int, c_void_p], None
        address = malloc(size, 0, None)
        return address, lambda: free(address, size, 0, None)

    def test_stats(self):
        _base.reset_accumulated(0)
        before = _base.memory_stats(0)
        _, free = self.allocate(3 * MIB)
        stats = _base.memory_stats(0)
        grown = stats["allocated_bytes"]["all"]["current"] - before["allocated_bytes"]["all"]["current"]
        self.assertEqual(grown, 3 * MIB)
        self.assertEqual(stats["allocation"]["all"]["allocated"], 1)
        self.assertGreaterEqual(stats["reserved_bytes"]["all"]["current"], stats["allocated_bytes"]["all"]["current"])
        free()
        self.assertEqual(_base.memory_stats(0)["allocation"]["all"]["freed"], 1)
        _base.reset_peaks(0)
        peak = _base.memory_stats(0)["allocated_bytes"]["all"]["peak"]
        self.assertEqual(peak, before["allocated_bytes"]["all"]["current"])

    def test_snapshot(self):
        address, free = self.allocate(5 * MIB)
        found = _base.snapshot((0, 0, True))["segments"]
        for segment in found:
            blocks = segment["blocks"]
            self.assertEqual(sum(block["size"] for block in blocks), segment["total_size"])
            self.assertEqual(blocks[0]["address"], segment["address"])
            for block, following in zip(blocks, blocks[1:]):
                self.assertEqual(block["address"] + block["size"], following["address"])
        states = {block["address"]: block["state"] for segment in found for block in segment["blocks"]}
        self.assertEqual(states[address], "active_allocated")
        free()
        found = _base.snapshot()["segments"]
        states = {block["address"]: block["state"] for segment in found for block in segment["blocks"]}
        self.assertNotEqual(states.get(address), "active_allocated")
        self.assertEqual(_base.snapshot((0, 99, False))["segments"], [])

    def test_fraction(self):
        pool = forebay.Pool.shared()
        self.addCleanup(pool.set_limit, pool.limit())
        pool.set_limit(0)
        self.assertEqual(_base.memory_fraction(0), 1.0)
        pool.set_limit(pool.memory_info()[1] // 4)
        self.assertAlmostEqual(_base.memory_fraction(0), 0.25)

    def test_shared_pool_is_not_made_by_looking(self):
        with mock.patch.object(_pool, "_shared", None):
            self.assertIsNone(_pool.shared_pool_if_made())


@needs_torch
class Build(unittest.TestCase):
    def test_no_compiler(self):
        with tempfile.TemporaryDirectory() as cache:
            with mock.patch.dict(os.environ, XDG_CACHE_HOME=cache, CXX="no-such-compiler"):
                with self.assertRaisesRegex(BuildError, "no-such-compiler.*CXX"):
                    _build.build()

    def test_adapter(self):
        """Compiles the adapter, and the program beside this file against it; runs that on the host driver."""
        import torch

        if shutil.which("g++") is None:
            self.skipTest("g++ is not installed")
        try:
            adapter = Path(_build.build())
        except BuildError as error:
            self.skipTest(str(error).splitlines()[0])
        header, runtime = _build._forebay_header(), _build._cuda_headers()
        root = Path(torch.__file__).parent
        with tempfile.TemporaryDirectory() as scratch:
            program = Path(scratch) / "torch_adapter"
            command = ["g++", "-std=c++17", "-o", program, HERE / "torch_adapter.cpp", adapter]
            for folder in (header.parent, _build.SOURCES, root / "include", root / "include/torch/csrc/api/include", runtime):
                command += ["-isystem", folder]
            command += [f"-L{root / 'lib'}", "-lc10", "-lc10_cuda", "-ltorch_cuda", "-ltorch_cpu", "-ltorch"]
            command += ["-Wl,--unresolved-symbols=ignore-all", f"-Wl,-rpath,{root / 'lib'}:{adapter.parent}"]
            built = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            self.assertEqual(built.returncode, 0, built.stderr[-3000:])
            environment = {**os.environ, "FOREBAY_DRIVER": "host"}
            done = subprocess.run([program, forebay.library_path], capture_output=True, text=True, env=environment, timeout=120)
        if "cannot open shared object file" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
