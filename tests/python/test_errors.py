"""Misuse: every wrong argument is an exception with a text, and changes nothing."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import MIB, Case, forebay


class Sizes(Case):
    def test_negative_and_too_large(self):
        for resource in (forebay.PoolMemoryResource(), forebay.DeviceMemoryResource(0), forebay.HostMemoryResource()):
            for size in (-1, 1 << 64):
                with self.subTest(resource=resource, size=size), self.refused(ValueError, "size", str(size)):
                    resource.allocate(size)
            for size in (1.5, None, True, b"64"):
                with self.subTest(resource=resource, size=size), self.refused(TypeError, "size"):
                    resource.allocate(size)

    def test_more_than_there_is(self):
        for resource in (
            forebay.PoolMemoryResource(),
            forebay.DeviceMemoryResource(0, {}),
            forebay.PinnedMemoryResource({}),
            forebay.VirtualMemoryResource(0),
        ):
            with self.subTest(resource=resource):
                with self.refused(MemoryError) as context:
                    resource.allocate(1 << 50)
                self.assertIsInstance(context.exception, forebay.OutOfMemoryError)
                self.assertEqual(context.exception.status, forebay.Status.OUT_OF_MEMORY)
                resource.allocate(64).close()

    def test_indices_are_sizes(self):
        class Index:
            def __index__(self):
                return 64

        with forebay.PoolMemoryResource().allocate(Index()) as buffer:
            self.assertEqual(buffer.size, 64)


class Devices(Case):
    def test_out_of_range(self):
        for make in (
            forebay.DeviceMemoryResource,
            forebay.VirtualMemoryResource,
            forebay.PoolMemoryResource,
            lambda device: forebay.DeviceMemoryResource(device, {}),
        ):
            for device in (-1, 1 << 20, 1 << 40):
                with self.subTest(make=make, device=device), self.refused(ValueError):
                    make(device)
            with self.refused(TypeError, "device_id"):
                make(b"cuda:0")

    def test_devices_of_others(self):
        class Device:
            device_id = 0

        self.assertEqual(forebay.DeviceMemoryResource(Device()).device_id, 0)

    def test_pools_by_name(self):
        self.assertEqual(forebay.DeviceMemoryResource.from_pool(0, "default").device_id, 0)
        current = forebay.DeviceMemoryResource.from_pool(0, "current")
        self.assertFalse(current.is_handle_owned)
        same = forebay.DeviceMemoryResource.from_pool(0, current.handle)
        self.assertEqual(same.handle, current.handle)
        with self.refused(ValueError, "moon"):
            forebay.DeviceMemoryResource.from_pool(0, "moon")


class Pointers(Case):
    def test_foreign_ones_are_refused(self):
        pool = forebay.PoolMemoryResource()
        for pointer in (0x7FFF_0000_1000, 8):
            with self.subTest(pointer=pointer), self.refused(ValueError):
                pool.deallocate(pointer, 64)
        with pool.allocate(MIB) as buffer, self.refused(ValueError):
            pool.deallocate(buffer.handle + 512, 64)
        forebay.PoolMemoryResource().deallocate(None, 0)

    def test_addresses(self):
        for pointer in (-1, 1 << 64):
            with self.subTest(pointer=pointer), self.refused(ValueError, "ptr"):
                forebay.Buffer.from_handle(pointer, 1)
        for pointer in ("0x10", 1.5, True, object()):
            with self.subTest(pointer=pointer), self.refused(TypeError, "ptr"):
                forebay.Buffer.from_handle(pointer, 1)
        with self.refused(ValueError, "size"):
            forebay.Buffer.from_handle(0x1000, -1)

    def test_resources(self):
        with self.refused(TypeError, "MemoryResource"):
            forebay.Buffer.from_handle(0x1000, 1, object())
        with self.refused(ValueError, "owner"):
            forebay.Buffer.from_handle(0x1000, 1, forebay.PoolMemoryResource(), owner=object())
        with self.refused(TypeError, "pool"):
            forebay.PoolMemoryResource(0, "shared")


class Options(Case):
    def test_wrong_kinds(self):
        for make in (
            lambda options: forebay.DeviceMemoryResource(0, options),
            forebay.PinnedMemoryResource,
            forebay.ManagedMemoryResource,
            lambda options: forebay.VirtualMemoryResource(0, options),
        ):
            with self.refused(TypeError, "options"):
                make(7)
            with self.assertRaises(TypeError):
                make({"moon": 1})

    def test_values(self):
        for options in ({"max_size": -1}, {"numa_id": -2}, {"numa_id": 1 << 20}):
            with self.subTest(options=options), self.refused(ValueError):
                forebay.PinnedMemoryResource(options)
        with self.refused(ValueError, "addr_align"):
            forebay.VirtualMemoryResource(0, {"addr_align": -1})
        with self.refused(TypeError, "peers"):
            forebay.VirtualMemoryResource(0, {"peers": "01"})
        with self.refused(ValueError):
            forebay.VirtualMemoryResource(0, {"peers": [1 << 20]})


class Exceptions(Case):
    def test_each_has_its_kind_and_status(self):
        for kind, base in (
            (forebay.OutOfMemoryError, MemoryError),
            (forebay.InvalidArgumentError, ValueError),
            (forebay.UnsupportedError, NotImplementedError),
            (forebay.ClosedError, RuntimeError),
            (forebay.NotFoundError, RuntimeError),
            (forebay.NotPermittedError, RuntimeError),
            (forebay.PeerError, RuntimeError),
            (forebay.NoDriverError, RuntimeError),
            (forebay.CallError, RuntimeError),
        ):
            self.assertTrue(issubclass(kind, base) and issubclass(kind, forebay.ForebayError))
            again = pickle.loads(pickle.dumps(kind("text", forebay.Status.PEER)))
            self.assertEqual((str(again), again.status), ("text", forebay.Status.PEER))

    def test_statuses_map_to_them(self):
        from forebay import _errors

        for status in forebay.Status:
            if status:
                self.assertIsInstance(_errors.failure(status), forebay.ForebayError)
        self.assertEqual(_errors.failure(999).status, 999)


class Library(unittest.TestCase):
    """What is said when the library is missing, wrong or old. In a process of its own: it is opened once."""

    def run_with(self, library: str) -> str:
        package = os.path.dirname(os.path.dirname(forebay.__file__))
        done = subprocess.run(
            [sys.executable, "-c", "import forebay"],
            env={**os.environ, "PYTHONPATH": package, "FOREBAY_LIBRARY": library},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.splitlines()[-1]

    def test_missing(self):
        text = self.run_with("/nowhere/libforebay.so")
        for word in ("ImportError", "/nowhere/libforebay.so", "cargo build"):
            self.assertIn(word, text)

    def test_a_library_without_the_extension_beside_it(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            text = self.run_with(file.name)
        for word in ("ImportError", "libforebay_core.so", "cargo build"):
            self.assertIn(word, text)

    def test_a_library_that_lacks_functions(self):
        with tempfile.TemporaryDirectory() as folder:
            extension = os.path.join(folder, "libforebay_core.so")
            shutil.copyfile(forebay._core.__file__, extension)
            empty = os.path.join(folder, "libforebay.so")
            # Any shared library that is another one.
            shutil.copyfile(forebay._core.__file__, empty)
            text = self.run_with(empty)
        for word in ("ImportError", "forebay_"):
            self.assertIn(word, text)

    def test_a_function_that_is_not_there(self):
        with self.assertRaises(LookupError) as context:
            forebay.address_of("forebay_moon")
        for word in ("forebay_moon", forebay.library_path):
            self.assertIn(word, str(context.exception))


if __name__ == "__main__":
    unittest.main()
