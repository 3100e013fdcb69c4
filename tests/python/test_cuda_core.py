"""The cuda.core plug-in without a GPU. cuda.core's buffers need a CUDA context: here a plain record stands for them."""

import types
import unittest
from unittest import mock

from support import MIB, Case, forebay

try:
    from cuda.core import LEGACY_DEFAULT_STREAM
    from cuda.core import MemoryResource as CoreResource
except ImportError as error:
    raise unittest.SkipTest(f"cuda.core is not installed: {error}") from None

from forebay import cuda_core


def record(ptr, size, mr, *, stream):
    if not hasattr(stream, "__cuda_stream__"):
        raise TypeError("no stream")
    return types.SimpleNamespace(handle=ptr, size=size, memory_resource=mr, stream=stream)


class Resource(Case):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(cuda_core, "_from_handle", record)
        patch.start()
        self.addCleanup(patch.stop)
        self.resource = forebay.cuda_core.MemoryResource()

    def given(self):
        return forebay.Pool.shared().stats().live_by_framework["cuda_core"]

    def test_it_is_cuda_cores_and_says_what_it_is(self):
        self.assertIsInstance(self.resource, CoreResource)
        said = self.resource.device_id, self.resource.is_device_accessible, self.resource.is_host_accessible
        self.assertEqual((*said, self.resource.is_managed), (0, True, False, False))

    def test_memory_comes_and_goes_in_the_order_of_streams(self):
        with forebay.Stream() as stream:
            for queue in (LEGACY_DEFAULT_STREAM, stream):
                buffer = self.resource.allocate(1000, stream=queue)
                self.assertIs(buffer.memory_resource, self.resource)
                self.assertEqual((buffer.size, self.given()), (1000, 1024))
                self.resource.deallocate(buffer.handle, 1000, stream=queue)
                self.assertEqual(self.given(), 0)
                with self.refused(ValueError, hex(buffer.handle)[2:]):
                    self.resource.deallocate(buffer.handle, 1000, stream=queue)
        self.assertEqual(self.resource.allocate(0, stream=LEGACY_DEFAULT_STREAM).handle, 0)

    def test_a_builder_of_a_graph_stands_for_its_stream(self):
        with forebay.Stream() as stream:
            self.assertEqual(cuda_core._handle(types.SimpleNamespace(stream=stream)), stream.handle)

    def test_what_makes_a_buffer_is_known_by_its_parameters(self):
        class Known:
            def _init(ptr, size, mr=None, other=None, *, stream=None): ...
            def from_handle(ptr, size, mr=None, *, stream=None): ...

        class Unknown(Known):
            def _init(size, ptr, mr=None, *, stream=None): ...

        self.assertIs(cuda_core._maker(Known), Known._init)
        self.assertIs(cuda_core._maker(Unknown), Known.from_handle)
        self.assertIs(cuda_core._maker(types.SimpleNamespace(from_handle=5)), 5)

    def test_bad_input_leaves_nothing_behind(self):
        for size, kind in ((-1, ValueError), (1.5, TypeError), (True, TypeError), (1 << 50, MemoryError)):
            with self.subTest(size), self.assertRaises(kind):
                self.resource.allocate(size, stream=LEGACY_DEFAULT_STREAM)
        for stream in ("x", 5):
            with self.subTest(stream), self.assertRaises(TypeError):
                self.resource.allocate(512, stream=stream)
        self.assertEqual(self.given(), 0)
        for arguments, kind in (((999,), ValueError), ((0, 5), TypeError), (("x",), ValueError)):
            with self.subTest(arguments), self.assertRaises(kind):
                forebay.cuda_core.MemoryResource(*arguments)

    def test_other_pools(self):
        pool = forebay.Pool(limit=64 * MIB)
        resource = forebay.cuda_core.MemoryResource(0, pool)
        with self.refused(MemoryError, "limit"):
            resource.allocate(100 * MIB, stream=LEGACY_DEFAULT_STREAM)
        pinned = forebay.cuda_core.MemoryResource(0, forebay.Pool(pinned=True))
        self.assertTrue(pinned.is_host_accessible)
        buffer = pinned.allocate(1000, stream=LEGACY_DEFAULT_STREAM)
        pinned.deallocate(buffer.handle, 1000, stream=LEGACY_DEFAULT_STREAM)
