"""The hot calls of the extension, and its loading."""

import ast
import ctypes
import gc
import inspect
import os
import threading
import time
import unittest
from pathlib import Path

from forebay import _core
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
        for size, kind in ((-1, ValueError), (1 << 64, ValueError), (True, TypeError), (1.0, TypeError), ("1 k", ValueError)):
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


class Loading(Case):
    def test_a_second_copy_of_the_package_is_refused(self):
        self.run_program(
            "import sys, forebay\n"
            "kept = forebay.PoolMemoryResource().allocate(64)\n"
            "for name in [name for name in sys.modules if name.startswith('forebay')]: del sys.modules[name]\n"
            "try: import forebay as other\n"
            "except (ImportError, RuntimeError): kept.close()\n"
            "else: raise SystemExit('two copies')\n"
        )

    def test_the_library_lies_beside_the_extension(self):
        self.assertEqual(os.path.dirname(forebay.library_path), os.path.dirname(_core.__file__))

    def test_the_stub_names_what_there_is(self):
        stub = Path(forebay.__file__).with_name("_core.pyi")
        declared, here = ast.parse(stub.read_text()).body, {name for name in vars(_core) if not name.startswith("__")}
        named = {getattr(node, "name", None) or getattr(getattr(node, "target", None), "id", None) for node in declared}
        numbers = {name for name in here if name.isupper()}
        self.assertEqual(named - numbers - {None}, here - numbers)
        self.assertLessEqual({name for name in named if name and name.isupper()}, numbers)
        for node in declared:
            if isinstance(node, ast.FunctionDef):
                ours = list(inspect.signature(getattr(_core, node.name)).parameters)
                self.assertEqual([argument.arg for argument in node.args.args + node.args.kwonlyargs], ours, node.name)

    def test_views_keep_the_memory(self):
        gone = []

        class Owner:
            def __del__(self):
                gone.append(1)

        array = (ctypes.c_ubyte * 64)(*range(64))
        view = _core.memory_view(ctypes.addressof(array), 64, Owner())
        part = view[8:16].cast("H")
        del view
        gc.collect()
        self.assertEqual((gone, part[0]), ([], 8 | 9 << 8))
        part[0] = 7
        self.assertEqual(array[8], 7)
        del part
        gc.collect()
        self.assertEqual(gone, [1])


if __name__ == "__main__":
    unittest.main()
