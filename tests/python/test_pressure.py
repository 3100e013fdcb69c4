"""Garbage and foreign caches are asked before an allocation fails."""

import gc
import sys
import threading
import types
from unittest import mock

from forebay import pressure
from support import MIB, Case, forebay


class Cycle:
    def __init__(self, memory):
        self.memory, self.me = memory, self


class Pressure(Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(pressure.stop)
        self.addCleanup(gc.enable)
        self.pool = forebay.Pool(limit=64 * MIB)
        self.resource = forebay.PoolMemoryResource(0, self.pool)
        gc.disable()

    def test_garbage_is_collected_before_a_request_fails(self):
        pressure.start(self.pool)
        pressure.start(self.pool)
        Cycle(self.resource.allocate(60 * MIB))
        with self.resource.allocate(60 * MIB) as buffer:
            self.assertEqual(buffer.size, 60 * MIB)
            with self.refused(MemoryError, "asked for", "limit"):
                self.resource.allocate(60 * MIB)

    def test_nobody_is_asked_after_stop(self):
        pressure.start(self.pool)
        pressure.stop()
        pressure.stop()
        Cycle(self.resource.allocate(60 * MIB))
        with self.refused(MemoryError, "asked for"):
            self.resource.allocate(60 * MIB)
        gc.collect()

    def test_threads_that_run_out_together_all_get_an_answer(self):
        pressure.start(self.pool)
        failures = []

        def run():
            try:
                self.resource.allocate(100 * MIB)
            except MemoryError as error:
                failures.append(error)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(len(failures), 4)

    def test_a_failure_of_the_asking_is_no_other_error(self):
        pressure.start(self.pool)
        with mock.patch.object(gc, "collect", side_effect=KeyError("planted")), self.assertLogs("forebay.pressure"):
            with self.refused(MemoryError, "asked for"):
                self.resource.allocate(100 * MIB)

    def torch(self, backend):
        reserved = [5 * MIB]
        cuda = types.SimpleNamespace(
            is_initialized=lambda: True,
            memory=types.SimpleNamespace(get_allocator_backend=lambda: backend),
            memory_reserved=lambda device: reserved[0],
            empty_cache=mock.Mock(side_effect=lambda: reserved.__setitem__(0, 0)),
        )
        return types.SimpleNamespace(cuda=cuda)

    def test_pytorchs_own_cache_is_emptied_and_a_plug_ins_is_not(self):
        for backend, calls in (("native", 1), ("cudaMallocAsync", 1), ("pluggable", 0)):
            torch = self.torch(backend)
            with self.subTest(backend), mock.patch.dict(sys.modules, torch=torch, cupy=None):
                self.assertEqual(pressure.relieve(0, 1 << 50), bool(calls))
                self.assertEqual(torch.cuda.empty_cache.call_count, calls)

    def test_foreign_caches_are_left_alone_where_the_limit_is_what_binds(self):
        torch = self.torch("native")
        with mock.patch.dict(sys.modules, torch=torch, cupy=None):
            self.assertFalse(pressure.relieve(0, 100 * MIB, self.pool))
        self.assertEqual(torch.cuda.empty_cache.call_count, 0)

    def test_a_framework_that_raises_is_no_reason_to_fail(self):
        torch = self.torch("native")
        torch.cuda.empty_cache.side_effect = RuntimeError("capturing")
        with mock.patch.dict(sys.modules, torch=torch, cupy=None):
            self.assertFalse(pressure.relieve(0, 1 << 50))
