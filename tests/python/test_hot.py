"""The two implementations of the hot calls: that they are the same to a caller, and which one is used when."""

import ctypes
import gc
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from forebay import _hot, _plain, _plain_blocks, _plain_pinned
from support import MIB, Case, forebay


def stream_of(buffer):
    return buffer._look().stream


class Foreign:
    """A stream of somebody else's."""

    def __init__(self, *answers):
        self.answers, self.calls = list(answers), 0

    def __cuda_stream__(self):
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Streams(Case):
    def test_what_a_stream_stands_for_is_asked_each_time(self):
        resource = forebay.PoolMemoryResource()
        with forebay.Stream() as one, forebay.Stream() as other:
            foreign = Foreign((0, one.handle), (0, other.handle))
            with resource.allocate(64, foreign) as first, resource.allocate(64, stream=foreign) as second:
                self.assertEqual((stream_of(first), stream_of(second)), (one.handle, other.handle))
            self.assertEqual(foreign.calls, 2)

    def test_answers_that_are_almost_plain(self):
        class Number(int):
            pass

        resource = forebay.PoolMemoryResource()
        with forebay.Stream() as stream:
            for answer in ([0, stream.handle], (Number(0), Number(stream.handle)), (0, ctypes.c_uint64(stream.handle).value)):
                with self.subTest(answer=answer), resource.allocate(64, Foreign(answer)) as buffer:
                    self.assertEqual(stream_of(buffer), stream.handle)
            with resource.allocate(64, Number(stream.handle)) as buffer:
                self.assertEqual(stream_of(buffer), stream.handle)

    def test_a_streams_own_error_goes_through(self):
        resource = forebay.PoolMemoryResource()
        for error in (ZeroDivisionError("mine"), KeyboardInterrupt()):
            foreign = Foreign(error)
            with self.assertRaises(type(error)):
                resource.allocate(64, foreign)
            self.assertEqual(foreign.calls, 1)
        with self.refused(ValueError, "stream"):
            resource.allocate(64, Foreign((0, -1)))
        with self.refused(TypeError, "version 1"):
            resource.allocate(64, Foreign((1, 0)))

    def test_a_foreign_stream_is_kept_until_the_buffer_ends(self):
        gone = []

        class Mine(Foreign):
            def __del__(self):
                gone.append(1)

        resource = forebay.PoolMemoryResource()
        for end in ("close", "__del__"):
            buffer = resource.allocate(64, Mine((0, 0)))
            gc.collect()
            self.assertEqual(gone, [])
            if end == "close":
                buffer.close()
            else:
                del buffer
            self.assertEqual(gone.pop(), 1)

    def test_a_stream_outlives_its_buffer_in_a_cycle(self):
        live, pool = [], forebay.Pool.shared()
        before = pool.stats().live

        class Mine(Foreign):
            def __del__(self):
                live.append(pool.stats().live)

        for turn in (1, -1):
            stream = Mine((0, 0))
            buffer = forebay.PoolMemoryResource().allocate(MIB, stream)
            cycle = [stream, buffer][::turn]
            cycle.append(cycle)
            del stream, buffer, cycle
            gc.collect()
            self.assertEqual(live.pop(), before, "the stream ended before the buffer")

    def test_a_stream_that_has_its_buffer_ends_with_the_close(self):
        gone = []

        class Mine(Foreign):
            def __del__(self):
                gone.append(1)

        stream = Mine((0, 0))
        buffer = stream.scratch = forebay.PoolMemoryResource().allocate(64, stream)
        buffer.close()
        del stream, buffer
        gc.collect()
        self.assertEqual(gone, [1])


class Sizes(Case):
    def test_what_is_none(self):
        resource = forebay.PoolMemoryResource()
        for size, kind in ((-1, ValueError), (1 << 64, ValueError), (True, TypeError), (1.0, TypeError), ("1", TypeError)):
            with self.subTest(size=size), self.refused(kind, "size"):
                resource.allocate(size)
        for arguments in ((), (1, None, 2)):
            with self.assertRaises(TypeError):
                resource.allocate(*arguments)

    def test_what_counts_as_one(self):
        class Index:
            def __index__(self):
                return 64

        with forebay.PoolMemoryResource().allocate(size=Index()) as buffer:
            self.assertEqual(buffer.size, 64)


class Ends(Case):
    def test_a_resource_in_a_cycle_with_its_buffers(self):
        gone = []

        class Caching(forebay.PoolMemoryResource):
            def __del__(self):
                gone.append(1)
                if _hot.path is None:
                    super().__del__()

        resource = Caching()
        resource.spare = [resource.allocate(MIB) for _ in range(3)]
        del resource
        gc.collect()
        self.assertEqual(gone, [1])

    def test_a_closed_buffer_names_no_resource(self):
        buffer = forebay.PoolMemoryResource().allocate(64)
        self.assertIsNotNone(buffer.memory_resource)
        buffer.close()
        self.assertIsNone(buffer.memory_resource)

    def test_the_last_holder_of_a_pool_is_a_closed_buffer(self):
        buffer = forebay.PoolMemoryResource(0, forebay.Pool()).allocate(MIB)
        buffer.close()
        gc.collect()
        self.assertTrue(buffer.is_closed)

    def test_resources_are_not_copied(self):
        for resource in (forebay.PoolMemoryResource(), forebay.HostMemoryResource()):
            with self.refused(TypeError, type(resource).__name__):
                resource.__reduce__()

    def test_a_miss_lets_other_threads_run(self):
        add = ctypes.CFUNCTYPE(ctypes.c_uint32, *[ctypes.c_void_p] * 3, ctypes.POINTER(ctypes.c_uint64))
        add = add(forebay.address_of("forebay_pool_add_pressure_callback"))
        # A C function that knows nothing of the interpreter sleeps in the middle of the call: 0.3 s.
        sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
        pool, number = forebay.Pool(limit=4 * MIB), ctypes.c_uint64()
        self.assertEqual(add(pool._handle, sleep, 300_000, number), 0)
        resource, turns, done = forebay.PoolMemoryResource(0, pool), [], threading.Event()

        def count():
            while not done.is_set():
                turns.append(time.monotonic())
                time.sleep(0.001)

        other = threading.Thread(target=count)
        other.start()
        start = time.monotonic()
        with self.assertRaises(MemoryError):
            resource.allocate(64 * MIB)
        end = time.monotonic()
        done.set()
        other.join()
        self.assertGreater(end - start, 0.25)
        self.assertGreater(len([turn for turn in turns if start < turn < end]), 5)


class Choice(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="forebay-hot-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, text="", package=None, **variables):
        """What a fresh interpreter says of the extension, and its warnings."""
        package = package or Path(forebay.__file__).parent.parent
        fixed = {"PYTHONPATH": str(package), "FOREBAY_LIBRARY": forebay.library_path, "FOREBAY_PYTHON_FAST": ""}
        environment = {**os.environ, **fixed, **variables}
        text = text or "import forebay; forebay.PoolMemoryResource().allocate(64).close(); print(forebay._hot.path)"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), done.stderr

    def test_forbidden(self):
        self.assertEqual(self.run_program(FOREBAY_PYTHON_FAST="0"), ("None", ""))

    def test_demanded(self):
        library = self.elsewhere()
        for wish, word in (("1", "no extension"), ("yes", "'yes'")):
            answer, _ = self.run_program(
                "try: import forebay\nexcept ImportError as error: print(error)",
                FOREBAY_LIBRARY=library,
                FOREBAY_PYTHON_FAST=wish,
            )
            self.assertIn(word, answer)

    def elsewhere(self):
        """The library where no extension is beside it."""
        if (Path(forebay.__file__).parent / "_fast.abi3.so").exists():
            self.skipTest("the installed package has the extension inside")
        os.symlink(os.path.realpath(forebay.library_path), self.folder / "libforebay.so")
        return str(self.folder / "libforebay.so")

    def test_absent(self):
        self.assertEqual(self.run_program(FOREBAY_LIBRARY=self.elsewhere()), ("None", ""))

    @unittest.skipIf(sys.implementation.name != "cpython", "the extension is for CPython")
    def test_damaged(self):
        package = self.copy()
        (package / "forebay" / "_fast.abi3.so").write_bytes(b"not a library")
        answer, warned = self.run_program(package=package)
        self.assertEqual(answer, "None")
        for word in ("RuntimeWarning", "_fast.abi3.so cannot be used", "cargo build"):
            self.assertIn(word, warned)

    @unittest.skipIf(_hot.path is None, "the extension is not in use")
    def test_of_another_version(self):
        package = self.copy()
        file = package / "forebay" / "_hot.py"
        file.write_text(file.read_text().replace(f"\nABI = {_hot.ABI}\n", "\nABI = 999\n"))
        answer, warned = self.run_program(package=package)
        self.assertEqual(answer, "None")
        self.assertIn("this package's number 999", warned)

    @unittest.skipIf(_hot.path is None, "the extension is not in use")
    def test_a_second_copy_of_the_package(self):
        answer, _ = self.run_program(
            "import sys, forebay\n"
            "kept = forebay.PoolMemoryResource().allocate(64)\n"
            "for name in [name for name in sys.modules if name.startswith('forebay')]: del sys.modules[name]\n"
            "import forebay as other\n"
            "other.PoolMemoryResource().allocate(64).close()\n"
            "kept.close()\n"
            "assert other is not forebay\n"
            "print(other._hot.path)"
        )
        self.assertEqual(answer, "None")

    def copy(self):
        shutil.copytree(Path(forebay.__file__).parent, self.folder / "forebay", ignore=shutil.ignore_patterns("__pycache__"))
        return self.folder

    @unittest.skipIf(_hot.path is None, "the extension is not in use")
    def test_both_say_the_same_of_themselves(self):
        for module, name in (
            (_plain, "BufferBase"),
            (_plain, "ResourceBase"),
            (_plain_blocks, "CoreBase"),
            (_plain_pinned, "PinnedBase"),
        ):
            fast, plain = getattr(_hot, name), getattr(module, name)
            public = {member for member in vars(plain) if not member.startswith("_")}
            self.assertEqual({member for member in vars(fast) if not member.startswith("_")}, public)
            for member in public:
                ours, theirs = getattr(fast, member), getattr(plain, member)
                self.assertEqual(inspect.getdoc(ours), inspect.getdoc(theirs), member)
                self.assertEqual(list(inspect.signature(ours).parameters), list(inspect.signature(theirs).parameters))


if __name__ == "__main__":
    unittest.main()
