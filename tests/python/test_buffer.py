"""Buffers: their making and end, copies and fills, views, the CUDA Array Interface."""

import ctypes
import gc
import sys
import threading
import unittest

from forebay import _core
from support import MIB, Case, content, forebay, numpy_or_skip


class Making(Case):
    def test_not_directly(self):
        with self.refused(RuntimeError, "allocate"):
            forebay.Buffer()

    def test_a_pointer_of_nobodys(self):
        array = (ctypes.c_ubyte * 64)(*range(64))
        buffer = forebay.Buffer.from_handle(ctypes.addressof(array), 64)
        self.assertEqual((buffer.handle, buffer.size), (ctypes.addressof(array), 64))
        self.assertIsNone(buffer.memory_resource)
        self.assertTrue(buffer.is_host_accessible)
        buffer.close()
        self.assertEqual(list(array), list(range(64)))

    def test_an_owner_is_kept(self):
        gone = []

        class Owner:
            array = (ctypes.c_ubyte * 64)(*range(64))

            def __del__(self):
                gone.append(1)

        owner = Owner()
        buffer = forebay.Buffer.from_handle(ctypes.addressof(owner.array), 64, owner=owner)
        self.assertIs(buffer.owner, owner)
        view = buffer.as_memoryview()
        del owner
        buffer.close()
        self.assertEqual(gone, [])
        self.assertEqual(view[5], 5)
        del view
        gc.collect()
        self.assertEqual(gone, [1])

    def test_memory_of_a_resource(self):
        resource = forebay.DeviceMemoryResource(0, {})
        buffer = forebay.Buffer.from_handle(_core.resource_allocate_pointer(resource._handle, 4096, 0), 4096, resource)
        self.assertIs(buffer.memory_resource, resource)
        self.assertGreater(resource.attributes.used_mem_current, 0)
        buffer.close()
        forebay.Stream().sync()
        resource.deallocate(_core.resource_allocate_pointer(resource._handle, 4096, 0), 4096)

    def test_an_address_that_int_gives(self):
        class Address:
            def __int__(self):
                return 0x5000

        self.assertEqual(forebay.Buffer.from_handle(Address(), 8).handle, 0x5000)


class End(Case):
    def test_twice(self):
        buffer = forebay.PoolMemoryResource().allocate(64)
        buffer.close()
        buffer.close()
        self.assertTrue(buffer.is_closed)
        self.assertEqual((buffer.handle, buffer.size), (0, 0))
        self.assertIn("closed", repr(buffer))

    def test_with(self):
        with forebay.PoolMemoryResource().allocate(64) as buffer:
            self.assertFalse(buffer.is_closed)
        self.assertTrue(buffer.is_closed)

    def test_collection(self):
        pool = forebay.Pool.shared()
        before = pool.stats().live
        buffer = forebay.PoolMemoryResource().allocate(MIB)
        self.assertEqual(pool.stats().live, before + MIB)
        del buffer
        self.assertEqual(pool.stats().live, before)

    def test_in_a_cycle(self):
        buffer = forebay.PoolMemoryResource().allocate(MIB)
        cycle = [buffer]
        cycle.append(cycle)
        del buffer, cycle
        gc.collect()

    def test_many_threads_close_one(self):
        for _ in range(50):
            buffer = forebay.PoolMemoryResource().allocate(4096)
            threads = [threading.Thread(target=buffer.close) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertTrue(buffer.is_closed)

    def test_everything_on_a_closed_one_is_refused(self):
        resource = forebay.PinnedMemoryResource()
        buffer, other = resource.allocate(64), resource.allocate(64)
        buffer.close()
        for name, call in {
            "copy_to": lambda: buffer.copy_to(other, stream=None),
            "copy_to new": lambda: buffer.copy_to(stream=None),
            "copy_from": lambda: buffer.copy_from(other, stream=None),
            "copied from": lambda: other.copy_from(buffer, stream=None),
            "fill": lambda: buffer.fill(1, stream=None),
            "dlpack": lambda: buffer.__dlpack__(),
            "dlpack device": lambda: buffer.__dlpack_device__(),
            "view": lambda: buffer.as_memoryview(),
            "descriptor": lambda: buffer.get_ipc_descriptor(),
            "device": lambda: buffer.device_id,
            "interface": lambda: buffer.__cuda_array_interface__,
        }.items():
            with self.subTest(call=name), self.refused(RuntimeError):
                call()
        other.close()

    def test_interpreter_exit(self):
        self.run_program(
            "import sys, forebay\n"
            "kept = forebay.PoolMemoryResource().allocate(64)\n"
            "stream = forebay.Stream()\n"
            "sys.kept = [kept, forebay.PinnedMemoryResource().allocate(64, stream), forebay.Pool(), stream]\n"
            "sys.kept.append(sys.kept)\n"
            "sys.view = sys.kept[1].as_memoryview()\n"
            "class Mine(forebay.MemoryResource):\n"
            "    def allocate(self, size, stream=None): return forebay.Buffer.from_handle(0x5000, size, self)\n"
            "    def deallocate(self, ptr, size, stream=None): pass\n"
            "sys.mine = Mine().allocate(5)\n"
        )

    def test_after_a_fork(self):
        out = self.run_program(
            "import os, sys, forebay\n"
            "resource = forebay.PoolMemoryResource()\n"
            "buffer = resource.allocate(64)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    try:\n"
            "        resource.allocate(64)\n"
            "    except RuntimeError as error:\n"
            "        print(type(error).__name__, int(error.status), flush=True)\n"
            "    del buffer, resource\n"
            "    sys.exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "buffer.fill(1, stream=None)\n"
            "buffer.close()\n"
        )
        self.assertEqual(out.split(), ["CallError", str(int(forebay.Status.FORKED))])


class Same(Case):
    def test_equality(self):
        resource = forebay.PoolMemoryResource()
        with resource.allocate(64) as one, resource.allocate(64) as other:
            again = forebay.Buffer.from_handle(one.handle, one.size)
            self.assertEqual(one, again)
            self.assertEqual(hash(one), hash(again))
            self.assertNotEqual(one, other)
            self.assertNotEqual(one, forebay.Buffer.from_handle(one.handle, one.size - 1))
            self.assertNotEqual(one, one.handle)
            self.assertIn(hex(one.handle), repr(one))


class Copies(Case):
    def test_there_and_back(self):
        device, pinned = forebay.PoolMemoryResource(), forebay.PinnedMemoryResource()
        with pinned.allocate(1000) as source, device.allocate(1000) as middle, forebay.Stream() as stream:
            source.as_memoryview()[:] = bytes(number % 251 for number in range(1000))
            self.assertIs(source.copy_to(middle, stream=stream), middle)
            with middle.copy_to(stream=stream) as copy:
                self.assertIs(copy.memory_resource, device)
                stream.sync()
                self.assertEqual(content(copy), content(source))

    def test_sizes_must_agree(self):
        resource = forebay.PoolMemoryResource()
        with resource.allocate(1024) as one, resource.allocate(2048) as other:
            with self.refused(ValueError, "1024", "2048"):
                one.copy_to(other, stream=None)
            with self.refused(ValueError):
                one.copy_from(other, stream=None)

    def test_without_a_resource(self):
        with forebay.PinnedMemoryResource().allocate(64) as buffer:
            with self.refused(ValueError):
                forebay.Buffer.from_handle(buffer.handle, 64).copy_to(stream=None)

    def test_the_stream_is_named(self):
        with forebay.PoolMemoryResource().allocate(64) as buffer:
            for call in (buffer.copy_to, buffer.copy_from, buffer.fill):
                with self.assertRaises(TypeError):
                    call(buffer)
            with self.refused(TypeError, "dst"):
                buffer.copy_to(b"bytes", stream=None)


class Fills(Case):
    def test_patterns(self):
        with forebay.PinnedMemoryResource().allocate(64) as buffer:
            for value, expected in (
                (0, b"\0"),
                (255, b"\xff"),
                (True, b"\x01"),
                (b"a", b"a"),
                (b"ab", b"ab"),
                (bytearray(b"abcd"), b"abcd"),
                (memoryview(b"wxyz"), b"wxyz"),
            ):
                with self.subTest(value=value):
                    buffer.fill(value, stream=None)
                    self.assertEqual(content(buffer), expected * (64 // len(expected)))

    def test_what_is_none(self):
        with forebay.PinnedMemoryResource().allocate(63) as buffer:
            for value, kind in ((256, OverflowError), (-1, OverflowError), (b"", ValueError), (b"abc", ValueError),
                                (b"ab", ValueError), (1.5, TypeError), ("a", TypeError), (None, TypeError)):  # fmt: skip
                with self.subTest(value=value), self.assertRaises(kind):
                    buffer.fill(value, stream=None)


class Views(Case):
    def test_writable_and_kept(self):
        buffer = forebay.PinnedMemoryResource().allocate(64)
        view = buffer.as_memoryview()
        self.assertEqual((view.format, view.nbytes, view.readonly), ("B", 64, False))
        view[:3] = b"abc"
        self.assertEqual(content(buffer, 3), b"abc")
        buffer.close()
        view[0] = 7
        self.assertEqual(bytes(view[:3]), b"\x07bc")

    def test_it_waits_for_the_buffers_stream(self):
        with forebay.Stream() as stream, forebay.PinnedMemoryResource().allocate(8 * MIB, stream) as buffer:
            for value in range(20):
                buffer.fill(value, stream=stream)
                self.assertEqual(buffer.as_memoryview()[-1], value)

    def test_device_memory_has_none(self):
        with forebay.PoolMemoryResource().allocate(64) as buffer, self.refused(BufferError):
            buffer.as_memoryview()

    @unittest.skipIf(sys.version_info < (3, 12), "Python's own buffer protocol is for C alone before 3.12")
    def test_pep_688(self):
        buffer = forebay.PinnedMemoryResource().allocate(64)
        view = memoryview(buffer)
        view[:2] = b"hi"
        self.assertEqual(bytes(buffer)[:2], b"hi")
        buffer.close()
        self.assertEqual(bytes(view[:2]), b"hi")

    def test_numpy_takes_it(self):
        numpy = numpy_or_skip()
        buffer = forebay.PinnedMemoryResource().allocate(64)
        array = numpy.frombuffer(buffer.as_memoryview(), numpy.int32)
        array[:] = 5
        buffer.close()
        gc.collect()
        self.assertEqual(array.tolist(), [5] * 16)


class Interface(Case):
    def test_what_it_says(self):
        with forebay.Stream() as stream, forebay.PoolMemoryResource().allocate(64, stream) as buffer:
            described = buffer.__cuda_array_interface__
            self.assertEqual(described["version"], 3)
            self.assertEqual(described["shape"], (64,))
            self.assertEqual(described["typestr"], "|u1")
            self.assertEqual(described["data"], (buffer.handle, False))
            self.assertIsNone(described["strides"])
            self.assertEqual(described["stream"], stream.handle)
        with forebay.PoolMemoryResource().allocate(64) as buffer:
            self.assertEqual(buffer.__cuda_array_interface__["stream"], 1)

    def test_host_memory_has_none(self):
        array = (ctypes.c_ubyte * 64)()
        buffer = forebay.Buffer.from_handle(ctypes.addressof(array), 64)
        if not buffer.is_device_accessible:
            self.assertFalse(hasattr(buffer, "__cuda_array_interface__"))

    def test_from_one(self):
        source = forebay.PoolMemoryResource().allocate(64)
        buffer = forebay.Buffer.from_cuda_array_interface(source)
        self.assertEqual(buffer, source)
        self.assertIs(buffer.owner, source)
        buffer.close()
        self.assertFalse(source.is_closed)
        source.close()

    def described(self, **changes):
        class Array:
            __cuda_array_interface__ = {
                "version": 3, "shape": (4, 5), "typestr": "<f4", "data": (0x1000, False), "strides": None, **changes,
            }  # fmt: skip

        return Array()

    def test_sizes(self):
        read = forebay.Buffer.from_cuda_array_interface
        self.assertEqual(read(self.described()).size, 80)
        self.assertEqual(read(self.described(strides=(20, 4))).size, 80)
        self.assertEqual(read(self.described(shape=())).size, 4)
        self.assertEqual(read(self.described(shape=(0, 5), data=(0, False))).size, 0)
        self.assertEqual(read(self.described(shape=(1, 5), strides=(999, 4))).size, 20)

    def test_what_is_refused(self):
        read = forebay.Buffer.from_cuda_array_interface
        for changes, word in (
            ({"strides": (4, 16)}, "contiguous"),
            ({"data": (0x1000, True)}, "read-only"),
            ({"mask": object()}, "mask"),
        ):
            with self.subTest(changes=changes), self.refused(ValueError, word):
                read(self.described(**changes))
        with self.refused(TypeError, "__cuda_array_interface__"):
            read([1, 2])


if __name__ == "__main__":
    unittest.main()
