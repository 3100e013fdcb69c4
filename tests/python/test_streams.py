"""Streams of every make, and this package's own."""

import ctypes
import gc
import unittest

from forebay._stream import resolve
from support import MIB, Case, content, forebay


class Protocol:
    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


class Property:
    __cuda_stream__ = (0, 0x77)


class Torch:
    cuda_stream = 0x77


class Cupy:
    ptr = 0x77


class CudaCore:
    class handle:
        def __int__(self):
            return 0x77

    handle = handle()


class Numba:
    def __init__(self, handle):
        self.handle = handle


class Others(Case):
    def test_every_make(self):
        for stream in (
            0x77,
            Protocol((0, 0x77)),
            Property(),
            Torch(),
            Cupy(),
            CudaCore(),
            Numba(ctypes.c_void_p(0x77)),
            Numba(0x77),
        ):
            with self.subTest(stream=stream):
                handle, keep = resolve(stream)
                self.assertEqual(handle, 0x77)
                self.assertTrue(keep is stream or isinstance(stream, int))

    def test_the_default(self):
        for stream in (None, 0, Numba(ctypes.c_void_p()), Numba(ctypes.c_void_p(0)), Protocol((0, 0))):
            self.assertEqual(resolve(stream)[0], 0)

    def test_what_is_none(self):
        for stream in ("stream", 1.5, object(), True, Protocol((1, 2)), Protocol(5), Protocol(None), [1]):
            with self.subTest(stream=stream), self.refused(TypeError, "stream"):
                resolve(stream)
        for stream in (-1, 1 << 64):
            with self.subTest(stream=stream), self.refused(ValueError, "stream"):
                resolve(stream)

    def test_nothing_is_allocated_on_a_wrong_one(self):
        resource = forebay.PoolMemoryResource()
        for stream in ("stream", -1, True):
            with self.assertRaises((TypeError, ValueError)):
                resource.allocate(64, stream)


class Promises(Case):
    def test_a_promise_ends_once(self):
        with forebay.Stream() as stream:  # which is registered from the start
            forebay.register_stream(stream)
            forebay.unregister_stream(Protocol((0, stream.handle)))
            with self.assertRaisesRegex(forebay.NotFoundError, "not registered"):
                forebay.unregister_stream(stream)
            resource = forebay.PoolMemoryResource()
            for _ in range(3):
                resource.allocate(4096, stream).close()
            forebay.register_stream(stream.handle, device=0, pool=forebay.Pool.shared())
            for _ in range(3):
                resource.allocate(4096, stream).close()

    def test_what_cannot_be_promised(self):
        with self.assertRaises(TypeError):
            forebay.register_stream("stream")
        with self.assertRaisesRegex(ValueError, "stream 2"):
            forebay.register_stream(2)
        with self.assertRaises(ValueError):
            forebay.register_stream(0, device=99)
        with self.assertRaises(forebay.NotFoundError):
            forebay.unregister_stream(0)


class Own(Case):
    def test_what_it_is(self):
        with forebay.Stream(device=0) as stream:
            self.assertEqual(stream.__cuda_stream__(), (0, stream.handle))
            self.assertEqual(stream.device_id, 0)
            self.assertNotEqual(stream.handle, 0)
            stream.sync()
        self.assertTrue(stream.is_closed)
        stream.close()
        self.assertIn("closed", repr(stream))
        for call in (stream.sync, lambda: stream.handle, lambda: forebay.PoolMemoryResource().allocate(1, stream)):
            with self.refused(ValueError, "closed"):
                call()

    def test_devices_out_of_range(self):
        with self.refused(ValueError):
            forebay.Stream(device=1 << 20)
        with self.refused(ValueError, "cpu"):
            forebay.Stream(device="cpu")

    def test_work_is_in_order(self):
        resource, pinned = forebay.PoolMemoryResource(), forebay.PinnedMemoryResource()
        with forebay.Stream() as stream, pinned.allocate(4 * MIB, stream) as out:
            for value in range(1, 20):
                with resource.allocate(4 * MIB, stream) as buffer:
                    buffer.fill(value, stream=stream)
                    out.copy_from(buffer, stream=stream)
                stream.sync()
                self.assertEqual(content(out, 2), bytes([value, value]))

    def test_a_buffer_keeps_its_stream(self):
        stream = forebay.Stream()
        buffer = forebay.PoolMemoryResource().allocate(4096, stream)
        stream.close()
        del stream
        gc.collect()
        buffer.close()  # in the order of a stream that must still be there

    def test_closed_on_another_one(self):
        with forebay.Stream() as one, forebay.Stream() as other:
            buffer = forebay.PoolMemoryResource().allocate(4096, one)
            buffer.fill(1, stream=one)
            one.sync()
            buffer.close(other)
            self.assertTrue(buffer.is_closed)

    def test_a_stream_that_is_none_does_not_close(self):
        buffer = forebay.PoolMemoryResource().allocate(4096)
        with self.refused(TypeError):
            buffer.close("stream")
        self.assertFalse(buffer.is_closed)
        buffer.close()


if __name__ == "__main__":
    unittest.main()
