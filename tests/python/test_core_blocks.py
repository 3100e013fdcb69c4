"""What the plug-ins of the frameworks have of the extension, with the frameworks played by the tests."""

import ctypes
import gc
import subprocess
import sys
import threading
import tracemalloc
import types
import unittest
from unittest import mock

from forebay import _core
from forebay._pool import shared_pool
from support import MIB, ROOT, Case, forebay

CUDA_CORE = _core.FRAMEWORK_CUDA_CORE


class Queue:
    """A stream as cuda.core's."""

    def __init__(self, handle=0):
        self.handle = handle

    def __cuda_stream__(self):
        if isinstance(self.handle, BaseException):
            raise self.handle
        return 0, self.handle


def handle_of(stream):
    try:
        return stream.__cuda_stream__()[1]
    except AttributeError:
        return stream.stream.__cuda_stream__()[1]


def record(ptr, size, mr, *, stream):
    if isinstance(stream, Refused):
        raise stream.error
    return types.SimpleNamespace(ptr=ptr, size=size, mr=mr, stream=stream)


class Refused(Queue):
    """A stream that the framework does not take."""

    def __init__(self, error):
        super().__init__()
        self.error = error


class Resource(_core.CoreBase):
    def __init__(self, pool=None, on_host=False, make=record):
        handle, keep = (shared_pool(), None) if pool is None else (pool._handle, pool._capsule)
        self._connect(handle, keep, 0, on_host, make, handle_of)


def live():
    return forebay.Pool.shared().stats().live


class Blocks(Case):
    def test_they_come_and_go(self):
        pool = shared_pool()
        address = _core.malloc(pool, CUDA_CORE, 1000, 0, None)
        self.assertEqual(forebay.Pool.shared().stats().live_by_framework["cuda_core"], 1024)
        self.assertEqual(_core.free_after_all(pool, address), 0)
        self.assertNotEqual(_core.free_after_all(pool, address), 0)
        self.assertEqual(_core.malloc(pool, CUDA_CORE, 0, 0, 0), 0)

    def test_what_cannot_be_had(self):
        pool = shared_pool()
        with self.refused(MemoryError, "asked for"):
            _core.malloc(pool, CUDA_CORE, 1 << 50, 0, None)
        with self.refused(ValueError, "999"):
            _core.malloc(pool, CUDA_CORE, 64, 999, None)
        with self.refused(ValueError, "77"):
            _core.malloc(pool, 77, 64, 0, None)

    def test_memory_of_the_host(self):
        pool = forebay.Pool(pinned=True)
        address = _core.malloc_ready(pool._handle, 1000, 0)
        ctypes.memset(address, 7, 1000)
        self.assertEqual(_core.free_after_all(pool._handle, address), 0)
        with self.refused(MemoryError, "asked for"):
            _core.malloc_ready(pool._handle, 1 << 50, 0)


class Core(Case):
    def test_pairs_on_any_stream(self):
        resource = Resource()
        with forebay.Stream() as stream:
            for queue in (Queue(), stream, types.SimpleNamespace(stream=stream)):
                for size in (1000, 1000, 3 * MIB):
                    buffer = resource.allocate(size, stream=queue)
                    self.assertIs(buffer.mr, resource)
                    self.assertEqual((buffer.size, live() - self.live), (size, -(-size // 512) * 512))
                    resource.deallocate(buffer.ptr, size, stream=queue)
                    self.assertEqual(live(), self.live)
        self.assertEqual(resource.allocate(0, stream=Queue()).ptr, 0)

    def test_arguments(self):
        class Number:
            def __index__(self):
                return 700

        resource, queue = Resource(), Queue()
        buffer = resource.allocate(size=Number(), stream=queue)
        self.assertEqual(buffer.size, 700)
        with self.refused(ValueError, "ptr"):
            resource.deallocate(-1, 700, stream=queue)
        with self.refused(TypeError, "ptr"):
            resource.deallocate("x", 700, stream=queue)
        resource.deallocate(ctypes.c_int(0).value, 0, stream=queue)  # NULL is fine
        resource.deallocate(ctypes.c_void_p(buffer.ptr).value, 700, stream=queue)
        with self.refused(ValueError, hex(buffer.ptr)[2:]):
            resource.deallocate(buffer.ptr, 700, stream=queue)
        for size, kind in (
            (-1, ValueError),
            (1 << 64, ValueError),
            (True, TypeError),
            (1.5, TypeError),
            (1 << 50, MemoryError),
        ):
            with self.subTest(size), self.assertRaises(kind):
                resource.allocate(size, stream=queue)
        for call, arguments in (
            (resource.allocate, (5,)),
            (resource.allocate, (5, queue)),
            (resource.deallocate, (0, 0, queue)),
        ):
            with self.assertRaises(TypeError):
                call(*arguments)

    def test_an_exception_of_the_stream_goes_through(self):
        for error in (ZeroDivisionError("mine"), KeyboardInterrupt()):
            with self.assertRaises(type(error)):
                Resource().allocate(64, stream=Queue(error))
        with self.assertRaises(AttributeError):
            Resource().allocate(64, stream=object())

    def test_a_stream_that_the_framework_refuses_leaves_nothing(self):
        with self.refused(TypeError, "no stream"):
            Resource().allocate(4096, stream=Refused(TypeError("no stream")))
        self.assertEqual(live(), self.live)

    def test_other_pools(self):
        pool = forebay.Pool(limit=4 * MIB)
        with self.refused(MemoryError, "limit"):
            Resource(pool).allocate(64 * MIB, stream=Queue())
        pinned = Resource(forebay.Pool(pinned=True), on_host=True)
        buffer = pinned.allocate(1000, stream=Queue())
        ctypes.memset(buffer.ptr, 1, 1000)
        pinned.deallocate(buffer.ptr, 1000, stream=Queue())

    def test_nothing_is_kept(self):
        resource, queue, size = Resource(), Queue(), 123_456
        objects = (resource, queue, size, record, None)

        def pairs(count):
            for step in range(count):
                buffer = resource.allocate(size, stream=queue)
                resource.deallocate(buffer.ptr, size, stream=queue)
                with self.assertRaises(AttributeError):
                    resource.allocate(size, stream=None)
                if step % 200 == 0:  # each collects garbage
                    with self.assertRaises(MemoryError):
                        resource.allocate(1 << 50, stream=queue)

        keeps_nothing(self, pairs, objects)


class Pointer:
    """As CuPy's."""

    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class Pinned(_core.PinnedBase):
    """Addresses that are counted up."""

    def __init__(self, pointer=Pointer):
        self._connect(pointer)
        self.made, self.given_back = 0, []

    def _more(self, size):
        self.made += 1
        return self.made * (64 * MIB)

    def _give_back(self, ptr):
        self.given_back.append(ptr)


class PinnedBlocks(Case):
    def test_a_block_is_handed_out_again(self):
        pool = Pinned()
        first, second = pool.malloc(1000), pool.malloc(1024)
        self.assertEqual((first.mem.size, first.mem.ptr, int(first.mem)), (1024, first.ptr, first.ptr))
        address = first.ptr
        del first
        self.assertEqual(pool._at_hand(), 1)
        again = pool.malloc(513)
        self.assertEqual((again.ptr, pool.made), (address, 2))
        self.assertNotEqual(again.ptr, second.ptr)

    def test_how_much_is_kept(self):
        pool = Pinned()
        blocks = [pool.malloc(MIB) for _ in range(6)] + [pool.malloc(MIB + 1)]
        gone = [block.ptr for block in blocks]
        blocks.clear()
        self.assertEqual((pool._at_hand(), len(pool.given_back)), (4, 3))
        self.assertIn(gone[-1], pool.given_back)
        self.assertEqual(sorted(pool._take_at_hand() + pool.given_back), sorted(gone))
        self.assertEqual(pool._at_hand(), 0)
        pool = Pinned()
        for size in range(70):
            pool.malloc(512 * (size + 1))
        self.assertEqual((pool._at_hand(), len(pool.given_back)), (64, 6))

    def test_a_block_that_is_freed_by_hand(self):
        pool = Pinned()
        block = pool.malloc(2048)
        for ptr, size in ((block.ptr, 512), (block.ptr + 512, 2048), (0, 0), (0, 2048)):
            with self.subTest(ptr=ptr, size=size), self.refused(RuntimeError, "no block"):
                pool.free(ptr, size)
        pool.free(block.ptr, 2000)
        with self.refused(RuntimeError, "no block"):
            pool.free(block.ptr, 2048)
        other = pool.malloc(2048)
        self.assertEqual(other.ptr, block.ptr)
        del block  # it owns nothing any more
        self.assertEqual(pool._at_hand(), 0)
        long = pool.malloc(2 * MIB)
        pool.free(long.ptr, 2 * MIB)
        self.assertEqual(pool.given_back, [long.ptr])

    def test_sizes(self):
        pool = Pinned()
        self.assertEqual((pool.malloc(0).ptr, pool.made), (0, 0))
        for size, kind in ((-1, ValueError), (1 << 64, ValueError), ("x", ValueError), (True, TypeError)):
            with self.subTest(size), self.assertRaises(kind):
                pool.malloc(size)

    def test_what_fails_leaves_nothing(self):
        pool = Pinned()
        with mock.patch.object(Pinned, "_more", side_effect=MemoryError("planted")), self.refused(MemoryError, "planted"):
            pool.malloc(512)
        with mock.patch.object(Pointer, "__init__", side_effect=KeyError("planted")), self.refused(KeyError, "planted"):
            pool.malloc(512)
        gc.collect()
        self.assertEqual((pool.made, pool._at_hand()), (1, 1))

    def test_a_failing_end_is_reported_and_hides_nothing(self):
        pool = Pinned()
        pool._give_back = mock.Mock(side_effect=ZeroDivisionError("planted"))

        def fail():
            block = pool.malloc(2 * MIB)  # ends while the exception is on its way
            raise KeyError(block.ptr)

        with mock.patch("sys.unraisablehook") as reported:
            try:
                fail()
            except KeyError as error:
                error.__traceback__ = None
        self.assertIsInstance(reported.call_args[0][0].exc_value, ZeroDivisionError)

    def test_a_block_keeps_its_pool(self):
        gone = []

        class Mine(Pinned):
            def __del__(self):
                gone.append(1)

        block = Mine().malloc(512)
        gc.collect()
        self.assertEqual(gone, [])
        del block
        gc.collect()
        self.assertEqual(gone, [1])

    def test_threads_never_share_a_block(self):
        pool, errors, owners = Pinned(), [], {}

        def work(number):
            try:
                for step in range(3000):
                    blocks = [pool.malloc(512 * (1 + (step + index) % 5)) for index in range(4)]
                    for block in blocks:
                        if owners.setdefault(block.ptr, number) != number:
                            errors.append(block.ptr)
                    for block in blocks:
                        owners.pop(block.ptr)
                    del blocks, block
            except BaseException as error:
                errors.append(error)

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        self.addCleanup(sys.setswitchinterval, before)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertLessEqual(pool.made, 4 * 4 * 5)
        self.assertEqual(pool._at_hand(), pool.made)

    def test_nothing_is_kept(self):
        pool = Pinned()
        pool.malloc(1000)

        def pairs(count):
            for _ in range(count):
                pool.malloc(1000)

        keeps_nothing(self, pairs, (pool, Pointer, Pinned, None))


def keeps_nothing(case, pairs, objects):
    """Many pairs leave as many references, objects and bytes of Python's as some."""
    pairs(200)
    gc.collect()
    references, count = [sys.getrefcount(one) for one in objects], len(gc.get_objects())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        pairs(3000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    case.assertLess(grown, 3000, "bytes")
    case.assertLess(len(gc.get_objects()) - count, 100, "objects")
    for one, then, now in zip(objects, references, [sys.getrefcount(one) for one in objects]):
        case.assertLess(abs(now - then), 100, f"references to {one!r:.60}")


class Host(_core.PinnedBase):
    """As forebay.cupy.PinnedMemoryPool."""

    def __init__(self, pool):
        self.raw, self.keep = pool._handle, pool._capsule
        self._connect(Pointer)

    def _more(self, size):
        return _core.malloc_ready(self.raw, size, 0)

    def _give_back(self, ptr):
        if _core.free_after_all(self.raw, ptr):
            raise AssertionError("what was given is taken")


class Ends(Case):
    def test_memory_in_a_cycle_with_its_pool(self):
        for _ in range(20):
            own = forebay.Pool()
            cycle = [own, Resource(own), Host(forebay.Pool(pinned=True))]
            cycle += [cycle, cycle[1].allocate(512, stream=Queue()), cycle[2].malloc(512), cycle[2].malloc(2 * MIB)]
            resource, buffer = cycle[1], cycle[4]

            class Late:
                def __del__(self, resource=resource, buffer=buffer):
                    resource.deallocate(buffer.ptr, 512, stream=Queue())

            cycle.append(Late())
            del own, cycle, resource, buffer, Late
            gc.collect()

    def test_what_is_live_when_the_interpreter_ends(self):
        text = (
            "import sys; sys.path.insert(0, 'tests/python')\n"
            "import test_core_blocks as t\n"
            "from support import forebay\n"
            "pool, own = t.Host(forebay.Pool(pinned=True)), forebay.Pool()\n"
            "resources = t.Resource(), t.Resource(own)\n"
            "kept = [pool.malloc(size) for size in (512, 2 << 20)], [r.allocate(512, stream=t.Queue()) for r in resources]\n"
            "class Late:\n"
            "    def __del__(self, resources=resources, kept=kept, Queue=t.Queue):\n"
            "        for r, buffer in zip(resources, kept[1]): r.deallocate(buffer.ptr, 512, stream=Queue())\n"
            "        print('late')\n"
            "late, cycle = Late(), [pool]; cycle.append(cycle)\n"
        )
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, cwd=ROOT)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "late\n"))


class Try(Case):
    """The calls of the C ABI for who holds a lock."""

    def test_they_answer_for_hits_only(self):
        functions = {}
        for name, arguments in (
            ("malloc", (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)),
            ("free", (ctypes.c_void_p,) * 3),
        ):
            functions[name] = ctypes.CFUNCTYPE(ctypes.c_uint32, *arguments)(_core.address_of(f"forebay_pool_try_{name}"))
        malloc, free, pool, out = functions["malloc"], functions["free"], shared_pool(), ctypes.c_void_p(5)
        self.assertEqual(malloc(pool, CUDA_CORE, 7 * MIB + 513, 0, None, ctypes.byref(out)), 0)
        self.assertEqual(out.value, 5, "a miss writes nothing")
        block = _core.malloc(pool, CUDA_CORE, 4096, 0, None)
        self.assertEqual(free(pool, block, None), 1)
        self.assertEqual(free(pool, block, None), 0)
        for framework, where in ((77, ctypes.byref(out)), (CUDA_CORE, None)):
            self.assertEqual(malloc(pool, framework, 4096, 0, None, where), 0)
        self.assertEqual(malloc(None, CUDA_CORE, 4096, 0, None, ctypes.byref(out)), 0)
        self.assertEqual(malloc(pool, CUDA_CORE, 4096, 0, None, ctypes.byref(out)), 1)
        self.assertEqual(out.value, block)
        self.assertEqual(free(pool, block, None), 1)
        self.assertEqual(free(None, block, None), 0)


if __name__ == "__main__":
    unittest.main()
