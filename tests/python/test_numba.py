"""The Numba plug-in, as far as Numba goes without a GPU: its own pointers, with a context that only has a device."""

import gc
import pickle
import types
import unittest
import weakref

from support import MIB, Case, forebay, numpy_or_skip

numpy = numpy_or_skip()
if not hasattr(numpy, "row_stack"):  # numba-cuda 0.30 needs it
    numpy.row_stack = numpy.vstack
try:
    from numba.cuda.cudadrv import driver
except Exception as error:
    raise unittest.SkipTest(f"numba-cuda cannot be imported: {error}") from None

import forebay.numba
from forebay.numba._books import Books


class Context:
    def __init__(self):
        self.device = types.SimpleNamespace(id=0, get_device_identity=lambda: {"pci_bus_id": 1})


class Manager(Case):
    def setUp(self):
        super().setUp()
        self.context = Context()
        self.manager = forebay.numba.ForebayMemoryManager(context=self.context)

    def given(self):
        gc.collect()
        return forebay.Pool.shared().stats().live_by_framework["numba"]

    def test_numba_makes_one_without_a_context_to_ask_its_version(self):
        self.assertEqual(forebay.numba.ForebayMemoryManager(context=None).interface_version, 1)
        self.assertIs(forebay.numba._numba_memory_manager, forebay.numba.ForebayMemoryManager)

    def test_device_memory_lives_as_long_as_its_views(self):
        memory = self.manager.memalloc(1000)
        self.assertIsInstance(memory, driver.MemoryPointer)
        self.assertEqual((memory.size, self.given()), (1000, 1024))
        self.assertTrue(memory.is_managed)
        view = memory.view(10)
        self.assertEqual(view.device_pointer_value, memory.device_pointer_value + 10)
        del memory
        self.assertEqual(self.given(), 1024)
        del view
        self.assertEqual(self.given(), 0)

    def test_device_memory_is_freed_by_hand_once(self):
        memory = self.manager.memalloc(512)
        memory.free()
        self.assertEqual(self.given(), 0)
        with self.refused(RuntimeError, "dead memory"):
            memory.free()
        other = self.manager.memalloc(512)
        del memory
        self.assertEqual(self.given(), 512)
        owned = other.own()  # Numba's own count of references
        del owned
        self.assertEqual(self.given(), 512)
        del other
        self.assertEqual(self.given(), 0)

    def test_want_of_memory_is_forebays_error(self):
        with self.refused(forebay.OutOfMemoryError, "asked for"):
            self.manager.memalloc(1 << 50)

    def test_host_memory_of_every_kind(self):
        for wc in (False, True):
            for portable in (False, True):
                for mapped in (False, True):
                    with self.subTest(mapped=mapped, portable=portable, wc=wc):
                        memory = self.manager.memhostalloc(4096, mapped, portable, wc)
                        array = numpy.ndarray(4096, numpy.uint8, buffer=memory)
                        array[:] = 3
                        self.assertEqual(int(array.sum()), 3 * 4096)
                        if mapped:
                            self.assertTrue(driver.is_device_memory(memory))
                            self.assertEqual(memory.device_pointer_value, array.ctypes.data)
                        del memory, array
                        gc.collect()
                        self.assertEqual(len(self.manager._books), 0)

    def test_memory_of_the_program_is_pinned_once_at_a_time(self):
        array = numpy.zeros(100_000, numpy.uint8)
        for _ in range(2):
            with self.manager.defer_cleanup():
                pinned = self.manager.mempin(array, array.ctypes.data, array.nbytes)
                with self.refused(forebay.ForebayError):
                    self.manager.mempin(array, array.ctypes.data, array.nbytes)
                del pinned  # at once, although cleaning up is put off
        with self.refused(ValueError, "0"):
            self.manager.mempin(array, array.ctypes.data, 0)

    def test_cleaning_up_can_be_put_off(self):
        memory = self.manager.memalloc(512)
        with self.manager.defer_cleanup():
            with self.manager.defer_cleanup():
                del memory
            self.assertEqual(self.given(), 512)
        self.assertEqual(self.given(), 0)

    def test_a_reset_frees_everything_and_late_finalizers_nothing(self):
        memory, mapped = self.manager.memalloc(512), self.manager.memhostalloc(512, True)
        self.manager.reset()
        self.assertEqual(self.given(), 0)
        other = self.manager.memalloc(512)
        del memory, mapped
        self.assertEqual(self.given(), 512)
        self.manager.reset()
        del other
        self.assertEqual(self.given(), 0)

    def test_memory_info_is_what_can_still_be_had(self):
        pool = forebay.Pool.shared()
        memory = self.manager.memalloc(MIB)
        info = self.manager.get_memory_info()
        self.assertEqual(info.total, pool.memory_info()[1])
        self.assertEqual(info.free, pool.memory_info()[0] + pool.stats().free_bytes)
        limit = pool.limit()
        self.addCleanup(pool.set_limit, limit)
        pool.set_limit(64 * MIB)
        self.assertEqual(self.manager.get_memory_info().free, 64 * MIB - pool.stats().live)
        del memory
        gc.collect()

    def test_a_handle_crosses_and_is_not_opened_at_home(self):
        memory = self.manager.memalloc(MIB)
        handle = self.manager.get_ipc_handle(memory)
        self.assertIs(handle.base, memory)
        with self.refused(ValueError, "original process"):
            handle.open(self.context)
        copy = pickle.loads(pickle.dumps(handle))
        self.assertEqual((copy.base, copy.size, copy.source_info), (None, MIB, {"pci_bus_id": 1}))
        self.assertEqual(copy.handle.reserved, handle.handle.reserved)
        with self.refused(ValueError, "not opened"):
            copy.close()
        # The importing end, here in one process: the same memory at another address.
        pointer = copy.open(self.context)
        self.assertEqual((pointer.size, pointer.is_managed), (MIB, False))
        with self.refused(ValueError, "already opened"):
            copy.open(self.context)
        copy.close()
        del pointer, handle, copy, memory
        gc.collect()

    def test_install(self):
        before = driver._memory_manager
        self.addCleanup(setattr, driver, "_memory_manager", before)
        forebay.numba.install()
        forebay.numba.install()
        self.assertIs(driver._memory_manager, forebay.numba.ForebayMemoryManager)


class Once(Case):
    def test_each_piece_goes_back_once(self):
        books, back = Books(), []
        pieces = [books.add(back.append, number) for number in range(3)]
        self.assertEqual([piece.alive for piece in pieces], [True] * 3)
        pieces[0]()
        pieces[0]()
        self.assertEqual((back, pieces[0].alive, pieces[1].alive), ([0], False, True))
        pieces[1] = None  # a lost piece goes back too
        self.assertEqual((back, len(books)), ([0, 1], 1))
        books.reset()
        self.assertFalse(pieces[2].alive)
        pieces[2]()
        pieces.clear()
        self.assertEqual((back, len(books)), ([0, 1, 2], 0))

    def test_what_was_put_off_goes_back_with_a_reset(self):
        books, back = Books(), []
        piece = books.add(back.append, 1)
        with books.put_off():
            piece()
            self.assertEqual((back, piece.alive), ([], False))
            books.reset()
            self.assertEqual(back, [1])
        self.assertEqual(back, [1])

    def test_what_a_piece_keeps_goes_with_it(self):
        books, back, kept = Books(), [], Context()
        gone = weakref.ref(kept)
        piece = books.add(back.append, 1)
        piece.keeps = kept
        del kept
        self.assertIsNotNone(gone())
        piece()
        self.assertIsNone(gone())

    def test_the_interpreters_end_is_the_end_of_every_piece(self):
        text = (
            "import atexit, numpy, sys\n"
            "numpy.row_stack = numpy.vstack\n"
            "atexit.register(lambda: print(order))\n"  # before all others, so that it runs last
            "from forebay.numba._books import Books\n"
            "order, books = [], Books()\n"
            "kept = books.add(order.append, 'kept')\n"
            "sys.waiting = books.add(order.append, 'waiting')\n"
            "sys.pause = books.put_off(); sys.pause.__enter__(); sys.waiting(); assert order == []\n"
        )
        self.assertEqual(self.run_program(text), "['kept', 'waiting']\n")
