"""forebay.torch without a GPU and without PyTorch: what it refuses, which adapter it takes, and base mode's statistics on
the host driver. The adapters themselves: tests/adapters."""

import os
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

from forebay import _core, _pool
from forebay.torch import BuildError, InstallError, _base, _build, _compiler, _install
from support import MIB, Case, forebay


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
        for version in ("1.13.0", "2.8.0+cu126", "nightly"):
            self.torch.__version__ = version
            with self.subTest(version=version), self.refused(InstallError, version, "2.9 to 2.15"):
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

    def adapters(self, prebuilt=None, compiled=None, unloadable=()):
        """Adapters by their paths, and a list of what is installed. Those that can be loaded install themselves."""
        installed = []

        def entry(path):
            if path in unloadable:
                raise OSError(f"{path}: undefined symbol")
            return lambda library, version, text, size: installed.append((path, version.decode())) or 0

        for patch in (
            mock.patch.object(_build, "prebuilt", return_value=prebuilt),
            mock.patch.object(_build, "compiled", side_effect=[compiled or BuildError("no compiler")] * 2),
            mock.patch.object(_install, "_entry", entry),
            mock.patch.object(_base, "install", lambda torch: installed.append("base")),
            mock.patch.dict(os.environ),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        os.environ.pop("NCCL_GRAPH_REGISTER", None)
        return installed

    def test_without_a_compiler_base_mode_says_why(self):
        installed = self.adapters()
        with self.refused(InstallError, "no adapter for PyTorch 2.11.0", "no compiler"):
            forebay.torch.install("adapter")
        done = forebay.torch.install()
        self.assertEqual((done.mode, done.reason, installed), ("base", "no compiler", ["base"]))
        self.assertEqual(os.environ["NCCL_GRAPH_REGISTER"], "0")
        self.assertIs(forebay.torch.installation(), done)
        with self.refused(InstallError, "before", "base", "once"):
            forebay.torch.install()

    def test_the_prebuilt_adapter_needs_no_compiler(self):
        installed = self.adapters(prebuilt="/prebuilt.so")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            done = forebay.torch.install()
        self.assertEqual((done.mode, done.reason, done.adapter), ("adapter", "", "/prebuilt.so"))
        self.assertEqual(installed, [("/prebuilt.so", "2.11.0+cu130")])

    def test_a_prebuilt_adapter_that_cannot_be_loaded_is_compiled(self):
        installed = self.adapters(prebuilt="/prebuilt.so", compiled="/compiled.so", unloadable=("/prebuilt.so",))
        with self.assertLogs("forebay", "WARNING") as logged:
            done = forebay.torch.install()
        self.assertIn("/prebuilt.so: undefined symbol", logged.output[0])
        self.assertEqual((done.adapter, len(installed)), ("/compiled.so", 1))

    def test_no_adapter_that_can_be_loaded(self):
        self.adapters(compiled="/compiled.so", unloadable=("/compiled.so",))
        done = forebay.torch.install()
        self.assertEqual(done.mode, "base")
        self.assertIn("/compiled.so: undefined symbol", done.reason)

    def test_a_newer_pytorch_is_compiled_with_a_warning(self):
        self.torch.__version__ = "2.99.0"
        installed = self.adapters(compiled="/compiled.so")
        with self.assertWarnsRegex(RuntimeWarning, "2.99.0 is newer .*2.9 to 2.15.* compiled") as warned:
            done = forebay.torch.install()
        self.assertEqual((done.adapter, len(installed), warned.filename), ("/compiled.so", 1, __file__))

    def test_a_newer_pytorch_without_a_compiler_takes_base_mode_with_a_warning(self):
        self.torch.__version__ = "3.0.0"
        self.adapters()
        with self.assertWarnsRegex(RuntimeWarning, "3.0.0 is newer .* base mode"):
            done = forebay.torch.install()
        self.assertEqual((done.mode, done.reason), ("base", "no compiler"))

    def test_an_adapter_that_refuses_leaves_pytorch_as_it_was(self):
        installed = self.adapters(prebuilt="/prebuilt.so")

        def refuse(_library, _version, text, _size):
            text.value = b"this adapter is for PyTorch 2.12"
            return 1

        with mock.patch.object(_install, "_entry", lambda path: refuse), self.refused(InstallError, "for PyTorch 2.12"):
            forebay.torch.install()
        self.assertEqual((installed, forebay.torch.installation()), ([], None))

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
        from ctypes import CFUNCTYPE, c_int, c_ssize_t, c_void_p

        malloc = CFUNCTYPE(c_void_p, c_ssize_t, c_int, c_void_p)(forebay.address_of("forebay_torch_malloc"))
        free = CFUNCTYPE(None, c_void_p, c_ssize_t, c_int, c_void_p)(forebay.address_of("forebay_torch_free"))
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


class Prebuilt(unittest.TestCase):
    """Where a prebuilt adapter is found, and for which versions."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        patch = mock.patch.object(_core, "library_path", lambda: str(self.root / "release" / "libforebay.so"))
        patch.start()
        self.addCleanup(patch.stop)

    def make(self, folder, minor="2.13", name=None):
        place = self.root / folder / "adapters" / f"torch-{minor}" / (name or _compiler.file_name())
        place.parent.mkdir(parents=True)
        place.touch()
        return str(place)

    def test_beside_the_library_and_beside_its_folder(self):
        self.assertIsNone(_build.prebuilt("2.13.0"))
        beside = self.make(".")
        self.assertEqual(_build.prebuilt("2.13.0+cu130"), beside)
        nearer = self.make("release")
        self.assertEqual(_build.prebuilt("2.13.1"), nearer)
        self.assertIsNone(_build.prebuilt("2.12.0"))

    def test_other_sources(self):
        self.make(".", name="forebay_torch_adapter-0123456789abcdef.so")
        self.assertIsNone(_build.prebuilt("2.13.0"))

    def test_only_releases_that_are_known(self):
        self.make(".")
        self.make(".", "2.99")
        for version in ("2.13.0.dev20260601+cu130", "2.13.0a0+gitabc", "2.99.0", "nightly"):
            with self.subTest(version=version):
                self.assertIsNone(_build.prebuilt(version))


class Compiler(unittest.TestCase):
    def compile(self, folder, **environment):
        with mock.patch.dict(os.environ, environment):
            _compiler.compile_adapter(Path(folder) / "new" / "adapter.so", Path(folder), Path(folder))

    def test_no_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(BuildError, "no-such-compiler.*CXX"):
                self.compile(folder, CXX="no-such-compiler")

    def test_an_interface_that_changed(self):
        """The compiler says what it does not know, and nothing is left behind."""
        with tempfile.TemporaryDirectory() as folder:
            compiler = Path(folder) / "c++"
            compiler.write_text("#!/bin/sh\ncase $* in *-soname*) exit 0;; esac\necho 'error: no such function' >&2\nexit 1\n")
            compiler.chmod(0o755)
            with self.assertRaisesRegex(BuildError, "compiler failed: error: no such function"):
                self.compile(folder, CXX=str(compiler))
            self.assertEqual(os.listdir(Path(folder) / "new"), [])

    def test_the_known_versions_are_one_range(self):
        minors = sorted(_compiler.KNOWN)
        self.assertEqual(minors, [(2, minor) for minor in range(minors[0][1], minors[-1][1] + 1)])
        for minor, release in _compiler.KNOWN.items():
            self.assertEqual(_build.minor_version(release), minor)


if __name__ == "__main__":
    unittest.main()
