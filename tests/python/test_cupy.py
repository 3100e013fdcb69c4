"""The CuPy plug-in, as far as CuPy goes without a GPU: its own objects, with the stream and the device given."""

import ctypes
import os
import threading
import unittest
import weakref
from unittest import mock

from support import MIB, Case, forebay

try:
    from cupy.cuda import memory, memory_hook
except ImportError as error:
    raise unittest.SkipTest(f"CuPy is not installed: {error}") from None

import forebay.cupy
from forebay import _core
from forebay.cupy import _async_pool, _connect, _install, _pinned, _pool

EVENTS = [f"{what}_{when}process" for what in ("malloc", "alloc", "free") for when in ("pre", "post")]


class Log(memory_hook.MemoryHook):
    name = "Log"

    def __init__(self):
        self.log = []


for _event in EVENTS:
    setattr(Log, _event, lambda self, _event=_event, **words: self.log.append((_event, words)))


def hooks(name="forebay_cupy"):
    return _core.address_of(f"{name}_malloc"), _core.address_of(f"{name}_free")


class WithoutGpu(Case):
    """The device is 0, and the stream the legacy default one: CuPy asks the driver for both."""

    def setUp(self):
        super().setUp()
        _connect.connect()
        _core.cupy_set_stream_getter(0)
        for module in (_async_pool, _pinned, _pool):
            patch = mock.patch.object(module, "device_of_now", lambda: 0)
            patch.start()
            self.addCleanup(patch.stop)

    def new(self, size, param=0, functions=None):
        return memory.CFunctionAllocatorMemory(size, param, *(functions or hooks()), 0)


class Hooks(WithoutGpu):
    def test_memory_comes_from_the_shared_pool_and_goes_back(self):
        block = self.new(1000)
        self.assertEqual(forebay.Pool.shared().stats().live_by_framework["cupy"], 1024)
        del block
        self.assertEqual(forebay.Pool.shared().stats().live_by_framework["cupy"], 0)

    def test_memory_comes_from_the_pool_that_is_named(self):
        pool = forebay.Pool()
        block = self.new(1000, pool._handle)
        self.assertEqual((pool.stats().live, forebay.Pool.shared().stats().live), (1024, self.live))
        del block
        self.assertEqual(pool.stats().live, 0)

    def test_hooks_are_called_in_order_with_what_happens(self):
        forebay.Pool.shared().trim()
        with Log() as hook:
            block = self.new(300 * MIB + 1)
            address = block.ptr
            del block
        self.assertEqual([event for event, _ in hook.log], [EVENTS[0], EVENTS[2], EVENTS[3], EVENTS[1], EVENTS[4], EVENTS[5]])
        told, size = dict(hook.log), 300 * MIB + 512
        self.assertEqual(told["malloc_preprocess"], {"device_id": 0, "size": 300 * MIB + 1, "mem_size": size})
        self.assertGreater(told["alloc_preprocess"]["mem_size"], 0)
        self.assertEqual(told["malloc_postprocess"]["mem_ptr"], address)
        self.assertEqual(
            told["free_preprocess"],
            {"device_id": 0, "mem_size": size, "mem_ptr": address, "pmem_id": told["malloc_postprocess"]["pmem_id"]},
        )

    def test_a_failed_allocation_is_told_and_raises_cupys_error(self):
        with Log() as hook, self.refused(memory.OutOfMemoryError, "asked for"):
            self.new(1 << 50)
        self.assertEqual([event for event, _ in hook.log], EVENTS[:2])
        self.assertEqual(hook.log[1][1]["mem_ptr"], 0)

    def test_a_hook_that_raises_ends_the_allocation_and_leaks_nothing(self):
        for event in EVENTS[:2]:
            hook = type("Raises", (Log,), {event: mock.Mock(side_effect=KeyError("planted"))})()
            with self.subTest(event), hook, self.refused(KeyError, "planted"):
                self.new(4096)
            self.assertEqual(forebay.Pool.shared().stats().live, self.live)
        hook = type("Raises", (Log,), {EVENTS[1]: mock.Mock(side_effect=KeyError("planted"))})()
        with hook, self.refused(KeyError, "planted"):  # as in CuPy's own pools, it replaces the first exception
            self.new(1 << 50)

    def test_a_hook_that_raises_in_a_free_is_reported_and_the_memory_is_free(self):
        hook = type("Raises", (Log,), {EVENTS[4]: mock.Mock(side_effect=KeyError("planted"))})()
        with mock.patch("sys.unraisablehook") as reported, hook:
            block = self.new(4096)
            del block
        self.assertIsInstance(reported.call_args[0][0].exc_value, KeyError)

    def test_a_thread_whose_hooks_are_gone_pays_for_none(self):
        with mock.patch.object(memory_hook, "get_memory_hooks", wraps=memory_hook.get_memory_hooks) as asked:
            with Log():
                self.new(4096)
            self.assertEqual(asked.call_count, 4)  # before and after the allocation and the free
            asked.reset_mock()
            self.new(4096)
        asked.assert_not_called()

    def test_hooks_are_those_of_the_thread_and_nothing_of_a_thread_that_ended_is_kept(self):
        logs, containers = [], []

        def work():
            self.new(512)
            containers.append(weakref.ref(memory_hook.get_memory_hooks()))
            with Log() as hook:
                self.new(512)
            self.new(512)
            logs.append(len(hook.log))

        self.new(512)
        for _ in range(3):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        self.assertEqual(logs, [4, 4, 4])
        # The last one's goes when a further thread comes.
        self.assertEqual([container() for container in containers[:2]], [None, None])

    def test_hooks_of_a_pool_on_the_drivers(self):
        pool = forebay.cupy.MemoryAsyncPool("default")
        with Log() as hook:
            block = self.new(1000, pool._param, hooks("forebay_cupy_pool"))
            address = block.ptr
            self.assertGreaterEqual(pool._resources[0].attributes.used_mem_current, 1024)
            del block
        freed = dict(hook.log)["free_postprocess"]
        self.assertEqual((freed["mem_ptr"], freed["mem_size"]), (address, 1024))


class Pools(WithoutGpu):
    def test_figures_and_limits_of_a_pool_of_forebays(self):
        own = forebay.Pool()
        pool = forebay.cupy.MemoryPool(own)
        block = self.new(5 * MIB, own._handle)
        self.assertEqual((pool.used_bytes(), pool.used_bytes() + pool.free_bytes()), (5 * MIB, pool.total_bytes()))
        pool.set_limit(size=8 * MIB)
        self.assertEqual((pool.get_limit(), own.limit()), (8 * MIB, 8 * MIB))
        with self.refused(memory.OutOfMemoryError, "limit"):
            self.new(5 * MIB, own._handle)
        pool.set_limit(fraction=0.5)
        self.assertEqual(pool.get_limit(), own.memory_info()[1] // 2)
        pool.set_limit()
        self.assertEqual(pool.get_limit(), 0)
        del block
        self.assertGreater(pool.n_free_blocks(), 0)
        with self.assertWarns(DeprecationWarning):
            pool.free_all_free()
        self.assertEqual((pool.n_free_blocks(), pool.total_bytes()), (0, 0))
        with self.refused(TypeError, "Pool"):
            forebay.cupy.MemoryPool(5)

    def test_limits_are_checked(self):
        for size, fraction, word in ((1, 0.5, "one of them"), (-1, None, "-1"), (None, 1.5, "1.5"), (None, -0.1, "-0.1")):
            with self.subTest(size=size, fraction=fraction), self.refused(ValueError, word):
                _connect.limit_of(size, fraction, 100)
        for size, fraction, limit in ((None, None, 0), (0, None, 0), (7, None, 7), (None, 0.5, 50)):
            self.assertEqual(_connect.limit_of(size, fraction, 100), limit)

    def test_the_drivers_pools_have_limits_here(self):
        pool = forebay.cupy.MemoryAsyncPool("default")
        self.addCleanup(pool.set_limit)
        self.assertEqual(pool.get_limit(), 2**64 - 1)
        pool.set_limit(size=pool.used_bytes() + 4096)
        self.assertEqual(forebay.cupy.MemoryAsyncPool(["default"]).get_limit(), pool.get_limit())
        block = self.new(4096, pool._param, hooks("forebay_cupy_pool"))
        with self.refused(memory.OutOfMemoryError, "limit"):
            self.new(512, pool._param, hooks("forebay_cupy_pool"))
        del block
        with self.refused(RuntimeError, "device"):
            memory.CFunctionAllocatorMemory(512, pool._param, *hooks("forebay_cupy_pool"), 1)

    def test_memory_is_freed_on_the_stream_that_is_current_then(self):
        """Fails without that only where streams are late, as with FOREBAY_HOST_LATE."""
        pool, now = forebay.cupy.MemoryAsyncPool("default"), [0]
        getter = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)(lambda device: now[0])
        _core.cupy_set_stream_getter(ctypes.cast(getter, ctypes.c_void_p).value)
        self.addCleanup(_core.cupy_set_stream_getter, 0)
        pool._resources[0].attributes.release_threshold = 2**64 - 1
        with forebay.Stream() as first, forebay.Stream() as second:
            now[0] = first.handle
            block = self.new(8 * MIB, pool._param, hooks("forebay_cupy_pool"))
            forebay.Buffer.from_handle(block.ptr, 8 * MIB, owner=block).fill(1, stream=first)
            used = pool.used_bytes()
            now[0] = second.handle
            del block
            pool.free_all_blocks(second)
            self.assertEqual(pool.used_bytes(), used - 8 * MIB)
            now[0] = 0

    def test_free_all_blocks_takes_any_stream(self):
        pool = forebay.cupy.MemoryAsyncPool("default")
        with forebay.Stream() as stream:
            for named in (stream, stream.handle, 0, type("Theirs", (), {"ptr": stream.handle})()):
                pool.free_all_blocks(named)
        with self.refused(TypeError, "stream is a str"):
            pool.free_all_blocks("stream")
        with self.refused(ValueError, "closed"):
            pool.free_all_blocks(stream)

    def test_the_drivers_free_memory_is_not_counted_in_blocks(self):
        with self.refused(NotImplementedError, "not supported in MemoryAsyncPool"):
            forebay.cupy.MemoryAsyncPool("default").n_free_blocks()

    def test_a_limit_that_no_number_of_bytes_is(self):
        pools = forebay.cupy.MemoryAsyncPool("default"), forebay.cupy.MemoryPool(forebay.Pool())
        for pool in pools:
            limit = pool.get_limit()
            for size in (2**64, 2**64 + 4096, 1 << 100):
                with self.refused(OverflowError, str(size)):
                    pool.set_limit(size=size)
                self.assertEqual(pool.get_limit(), limit)
        with mock.patch.dict("os.environ", CUPY_GPU_MEMORY_LIMIT=str(2**64)), self.refused(OverflowError, str(2**64)):
            forebay.cupy.MemoryAsyncPool("default")

    def test_handles_of_pools_are_checked(self):
        for handles, kind, word in (
            ("create", ValueError, "create"),
            ([], ValueError, "0 entries"),
            (["current"] * 99, ValueError, "99"),
            (1.5, TypeError, "1.5"),
        ):
            with self.subTest(handles), self.refused(kind, word):
                forebay.cupy.MemoryAsyncPool(handles)
        one = forebay.cupy.MemoryAsyncPool()
        self.assertEqual(type(one.malloc.__self__).__module__, "cupy.cuda.memory", "no Python is in between")
        self.assertGreater(one._resources[0].attributes.release_threshold, 0)
        self.assertTrue(one == one and one != forebay.cupy.MemoryAsyncPool())
        with self.assertRaises(TypeError):
            one < one  # noqa: B015  (it is to raise)

    def test_a_derived_pool_has_its_own_malloc(self):
        class Derived(forebay.cupy.MemoryAsyncPool):
            def malloc(self, size):
                return size, self._param

        pool = Derived("default")
        self.assertEqual(pool.malloc(5), (5, forebay.cupy.MemoryAsyncPool("default")._param))

    def test_the_environments_limit(self):
        self.addCleanup(forebay.cupy.MemoryAsyncPool("default").set_limit)
        for text, limit in (("4096", 4096), ("50%", forebay.Pool.shared().memory_info()[1] // 2)):
            with mock.patch.dict("os.environ", CUPY_GPU_MEMORY_LIMIT=text):
                self.assertEqual(forebay.cupy.MemoryAsyncPool("default").get_limit(), limit)
        with mock.patch.dict("os.environ", CUPY_GPU_MEMORY_LIMIT="much"), self.refused(ValueError, "much"):
            forebay.cupy.MemoryAsyncPool("default")

    def test_pinned_memory(self):
        pool = forebay.cupy.PinnedMemoryPool(forebay.Pool(pinned=True))
        for size in (1000, 3 * MIB):
            block = pool.malloc(size)
            memoryview(block).cast("B")[:size] = b"x" * size
            self.assertEqual(block.mem.size % 512, 0)
        address = pool.malloc(1000).ptr
        again, other = pool.malloc(1000), pool.malloc(1000)
        self.assertEqual(again.ptr, address)
        pool.free(again.ptr, 1000)
        with self.refused(RuntimeError, "no block"):
            pool.free(again.ptr, 1000)
        third = pool.malloc(1000)
        self.assertEqual(third.ptr, address)
        del again  # it owns nothing any more
        self.assertNotEqual(pool.malloc(1000).ptr, address)
        del third, other, block
        pool.free_all_blocks()
        self.assertEqual(pool.n_free_blocks(), 0)
        for wrong, kind in ((forebay.Pool(), ValueError), (5, TypeError)):
            with self.assertRaises(kind):
                forebay.cupy.PinnedMemoryPool(wrong)


class Install(WithoutGpu):
    def setUp(self):
        super().setUp()
        self.before = memory.get_allocator()
        self.addCleanup(memory.set_allocator, self.before)
        self.addCleanup(forebay.cupy.uninstall)

    def test_it_begins_and_ends(self):
        pool = forebay.cupy.install()
        self.assertIs(forebay.cupy.install(), pool)
        self.assertIs(forebay.cupy.pool(), pool)
        self.assertIs(memory.get_allocator(), pool.malloc)
        own = forebay.Pool()
        other = forebay.cupy.install(own)
        self.assertIs(memory.get_allocator(), other.malloc)
        forebay.cupy.uninstall()
        self.assertIs(memory.get_allocator(), self.before)
        forebay.cupy.uninstall()

    def test_nccl_is_kept_from_the_buffers_of_graphs(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("NCCL_GRAPH_REGISTER", None)
            forebay.cupy.install()
            self.assertEqual(os.environ["NCCL_GRAPH_REGISTER"], "0")
            forebay.cupy.uninstall()
            os.environ["NCCL_GRAPH_REGISTER"] = "1"
            with self.assertWarnsRegex(RuntimeWarning, "NCCL_GRAPH_REGISTER is '1'") as warned:
                forebay.cupy.install()
            self.assertEqual((os.environ["NCCL_GRAPH_REGISTER"], warned.filename), ("1", __file__))

    def test_an_allocator_that_was_set_since_is_left_alone(self):
        forebay.cupy.install()
        memory.set_allocator(None)
        now = memory.get_allocator()
        forebay.cupy.uninstall()
        self.assertIs(memory.get_allocator(), now)

    def test_a_cupy_that_is_unknown_is_refused_and_as_it_was(self):
        with mock.patch.object(_connect, "_connected", False), mock.patch.object(_connect, "_stream", object()):
            with self.refused(RuntimeError, "get_stream_ptr", "not known"):
                forebay.cupy.install()
        self.assertIs(memory.get_allocator(), self.before)
        self.assertIsNone(_install._installed)
