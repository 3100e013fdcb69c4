"""DLPack both ways: capsules, versions, streams, lifetimes."""

import ctypes
import gc
import re
import unittest

from forebay import _core
from support import Case, content, forebay, numpy_or_skip


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


def name_of(capsule) -> str:
    return re.search(r'"(\w+)"', repr(capsule))[1]


def tensor_in(capsule) -> Tensor:
    """The tensor of a capsule that is not consumed."""
    name = name_of(capsule)
    address = _core.capsule_pointer(capsule, name)
    return (Versioned.from_address(address).tensor) if name == "dltensor_versioned" else Tensor.from_address(address)


class Giving(Case):
    def test_the_tensor(self):
        for resource in (forebay.PoolMemoryResource(), forebay.PinnedMemoryResource(), forebay.ManagedMemoryResource()):
            for version in (None, (0, 8), (1, 0), (2, 5)):
                with self.subTest(resource=resource, version=version), resource.allocate(100) as buffer:
                    capsule = buffer.__dlpack__(max_version=version)
                    versioned = version is not None and version >= (1, 0)
                    self.assertEqual(name_of(capsule), "dltensor_versioned" if versioned else "dltensor")
                    tensor = tensor_in(capsule)
                    self.assertEqual(tensor.data, buffer.handle)
                    self.assertEqual((tensor.ndim, tensor.shape[0], tensor.byte_offset), (1, 100, 0))
                    self.assertEqual((tensor.code, tensor.bits, tensor.lanes), (0, 8, 1))
                    self.assertEqual(tuple(tensor.device), buffer.__dlpack_device__())

    def test_devices(self):
        for resource, device in (
            (forebay.PoolMemoryResource(), (2, 0)),
            (forebay.PinnedMemoryResource(), (3, 0)),
            (forebay.ManagedMemoryResource(), (13, 0)),
        ):
            with resource.allocate(64) as buffer:
                self.assertEqual(buffer.__dlpack_device__(), device)
                buffer.__dlpack__(dl_device=device)
                with self.refused(BufferError, "dl_device"):
                    buffer.__dlpack__(dl_device=(1, 0))

    def test_an_unused_capsule_lets_go(self):
        for version in (None, (1, 0)):
            buffer = forebay.PoolMemoryResource().allocate(4096)
            capsule = buffer.__dlpack__(max_version=version)
            buffer.close()
            self.assertGreater(forebay.Pool.shared().stats().live, self.live)
            del capsule
            self.assertEqual(forebay.Pool.shared().stats().live, self.live)

    def test_streams(self):
        with forebay.Stream() as stream, forebay.PoolMemoryResource().allocate(64, stream) as buffer:
            for consumer in (None, -1, 1, 2, stream.handle):
                with self.subTest(consumer=consumer):
                    buffer.__dlpack__(stream=consumer)
            with self.refused(BufferError, "stream"):
                buffer.__dlpack__(stream=0)

    def test_copy(self):
        with forebay.PinnedMemoryResource().allocate(64) as buffer:
            buffer.fill(4, stream=None)
            copy = forebay.Buffer.from_dlpack(buffer.__dlpack__(copy=True))
            buffer.fill(5, stream=None)
            self.assertNotEqual(copy.handle, buffer.handle)
            self.assertEqual(content(copy), b"\x04" * 64)
            same = buffer.__dlpack__(copy=False)
            self.assertEqual(tensor_in(same).data, buffer.handle)
            copy.close()


class Taking(Case):
    def test_a_buffers_own(self):
        for version in (None, (1, 0)):
            source = forebay.PoolMemoryResource().allocate(4096)
            capsule = source.__dlpack__(max_version=version)
            buffer = forebay.Buffer.from_dlpack(capsule)
            self.assertEqual(buffer, source)
            with self.refused(ValueError, "consumed"):
                forebay.Buffer.from_dlpack(capsule)
            source.close()
            del capsule
            gc.collect()
            self.assertGreater(forebay.Pool.shared().stats().live, self.live)
            buffer.close()

    def test_an_exporter(self):
        with forebay.PinnedMemoryResource().allocate(64) as source:
            with forebay.Buffer.from_dlpack(source) as buffer:
                self.assertEqual(buffer, source)
            with forebay.Stream() as stream, forebay.Buffer.from_dlpack(source, stream=stream) as buffer:
                self.assertEqual(buffer, source)

    def test_the_stream_reaches_the_exporter(self):
        seen = []

        class Exporter:
            def __init__(self, buffer):
                self.buffer = buffer

            def __dlpack_device__(self):
                return self.buffer.__dlpack_device__()

            def __dlpack__(self, *, stream=None):  # older than max_version
                seen.append(stream)
                return self.buffer.__dlpack__(stream=stream)

        with forebay.PoolMemoryResource().allocate(64) as source, forebay.Stream() as stream:
            for given, expected in ((None, None), (0, 1), (stream, stream.handle), (2, 2)):
                forebay.Buffer.from_dlpack(Exporter(source), stream=given).close()
                self.assertEqual(seen.pop(), expected)

    def test_what_is_none(self):
        with self.refused(TypeError, "__dlpack__"):
            forebay.Buffer.from_dlpack(b"bytes")

        class Wrong:
            def __dlpack__(self, **_):
                return 7

        with self.refused(ValueError, "capsule"):
            forebay.Buffer.from_dlpack(Wrong())

    def test_a_refused_tensor_stays_the_capsules(self):
        numpy = numpy_or_skip()
        array = numpy.zeros((8, 8), numpy.int32)[:, ::2]
        capsule = array.__dlpack__()
        with self.refused(ValueError):
            forebay.Buffer.from_dlpack(capsule)
        self.assertEqual(name_of(capsule), "dltensor")


class Numpy(Case):
    def test_there(self):
        numpy = numpy_or_skip()
        buffer = forebay.PinnedMemoryResource().allocate(64)
        buffer.fill(7, stream=None)
        array = numpy.from_dlpack(buffer)
        self.assertEqual((array.dtype, array.shape), (numpy.int8, (64,)))
        buffer.close()
        gc.collect()
        self.assertEqual(array.tolist(), [7] * 64)

    def test_and_back(self):
        numpy = numpy_or_skip()
        array = numpy.arange(12, dtype=numpy.float64).reshape(3, 4)
        buffer = forebay.Buffer.from_dlpack(array)
        self.assertEqual((buffer.handle, buffer.size), (array.ctypes.data, 96))
        self.assertTrue(buffer.is_host_accessible)
        expected = array.tobytes()
        del array
        gc.collect()
        self.assertEqual(content(buffer), expected)
        buffer.close()


if __name__ == "__main__":
    unittest.main()
