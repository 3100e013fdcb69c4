"""Memory of one process in another: driver pools, pinned pools, Forebay's pool, virtual memory."""

import multiprocessing
import os
import pickle
import unittest
import uuid

import children
from support import MIB, Case, content, forebay

SPAWN = multiprocessing.get_context("spawn")
TIMEOUT = 120


class Shared(Case):
    def ask(self, target, *arguments):
        """Runs a function of `children` in another process; answers what it put into its queue."""
        answers = SPAWN.Queue()
        process = SPAWN.Process(target=target, args=(*arguments, answers))
        process.start()
        try:
            answer = answers.get(timeout=TIMEOUT)
            process.join(TIMEOUT)
        finally:
            if process.is_alive():
                process.kill()
                process.join()
        self.assertEqual(process.exitcode, 0)
        return answer

    def resources(self):
        return {
            "device": forebay.DeviceMemoryResource(0, {"ipc_enabled": True}),
            "pinned": forebay.PinnedMemoryResource({"ipc_enabled": True}),
            "pool": forebay.PoolMemoryResource(0),
            "virtual": forebay.VirtualMemoryResource(0),
        }

    def written(self, resource, size=4096):
        """A buffer of zeros that are there."""
        with forebay.Stream() as stream:
            buffer = resource.allocate(size, stream)
            buffer.fill(0, stream=stream)
            stream.sync()
        return buffer

    def test_a_buffer_is_sent(self):
        for name, resource in self.resources().items():
            with self.subTest(resource=name):
                buffer = self.written(resource)
                self.assertEqual(self.ask(children.fill, buffer, 7), ("ok", buffer.size))
                self.assertEqual(content(buffer, 4096), b"\x07" * 4096)
                buffer.close()

    def test_a_grown_virtual_buffer(self):
        resource = forebay.VirtualMemoryResource(0)
        buffer = self.written(resource)
        first = buffer.get_ipc_descriptor()
        for _ in range(3):
            resource.modify_allocation(buffer, buffer.size + 1)
        self.assertNotEqual(buffer.get_ipc_descriptor(), first)
        self.assertEqual(self.ask(children.fill, buffer, 3), ("ok", buffer.size))
        self.assertEqual(content(buffer), b"\x03" * buffer.size)
        buffer.close()

    def test_descriptors_are_bytes(self):
        for name in ("pool", "virtual"):
            with self.subTest(resource=name):
                buffer = self.written(self.resources()[name])
                descriptor = buffer.get_ipc_descriptor()
                self.assertEqual(descriptor.size, buffer.size)
                again = forebay.IPCBufferDescriptor.from_bytes(bytes(descriptor))
                self.assertEqual((again, again.size, hash(again)), (descriptor, buffer.size, hash(descriptor)))
                self.assertEqual(pickle.loads(pickle.dumps(descriptor)), descriptor)
                self.assertEqual(self.ask(children.by_descriptor, bytes(descriptor), 9), ("ok", buffer.size))
                self.assertEqual(content(buffer, 4096), b"\x09" * 4096)
                buffer.close()

    def test_a_pointer_into_the_shared_pool(self):
        with self.written(forebay.PoolMemoryResource(0), MIB) as buffer:
            self.assertIsNone(buffer.ipc_path)
            descriptor = forebay.export_pointer(buffer.handle + 4096)
            self.assertEqual(descriptor.size, MIB - 4096)
            self.assertEqual(self.ask(children.by_descriptor, bytes(descriptor), 5), ("ok", MIB - 4096))
            seen = content(buffer)
            self.assertEqual(seen[:4096], b"\0" * 4096)
            self.assertEqual(seen[4096:], b"\x05" * (MIB - 4096))
        with self.refused(ValueError):
            forebay.export_pointer(0x7FFF_0000_1000)

    def test_by_allocation_handle(self):
        for name in ("device", "pinned"):
            with self.subTest(resource=name):
                resource = self.resources()[name]
                buffer = self.written(resource)
                handle, data = resource.get_allocation_handle(), bytes(buffer.get_ipc_descriptor())
                self.assertEqual(handle.uuid, resource.uuid)
                node = getattr(resource, "numa_id", None)
                answer = self.ask(children.by_handle, type(resource).__name__, handle, node, data, 8)
                self.assertEqual(answer, ("ok", buffer.size))
                self.assertEqual(content(buffer, 4096), b"\x08" * 4096)
                buffer.close()

    def test_a_resource_is_sent_and_buffers_by_plain_pickle(self):
        for name in ("device", "pinned"):
            with self.subTest(resource=name):
                resource = self.resources()[name]
                buffer = self.written(resource)
                self.assertEqual(self.ask(children.by_resource, resource, pickle.dumps(buffer), 6), ("ok", buffer.size))
                self.assertEqual(content(buffer, 4096), b"\x06" * 4096)
                buffer.close()

    def test_a_dead_exporter(self):
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=children.export_and_leave, args=(theirs,))
        process.start()
        descriptor = forebay.IPCBufferDescriptor.from_bytes(ours.recv())
        forebay.Buffer.from_ipc_descriptor(None, descriptor).close()
        ours.send("leave")
        process.join(TIMEOUT)
        with self.refused(RuntimeError) as context:
            forebay.Buffer.from_ipc_descriptor(None, descriptor)
        self.assertIsInstance(context.exception, forebay.PeerError)


class Here(Case):
    """What needs no other process."""

    def test_import_in_the_exporter(self):
        with forebay.VirtualMemoryResource(0).allocate(MIB) as buffer:
            buffer.fill(4, stream=None)
            forebay.Stream().sync()
            with forebay.Buffer.from_ipc_descriptor(None, buffer.get_ipc_descriptor()) as again:
                self.assertEqual(again.size, buffer.size)
                self.assertEqual(content(again, 64), b"\x04" * 64)
            self.assertEqual(content(buffer, 64), b"\x04" * 64)

    def test_a_pool_mapped_in_its_own_process(self):
        resource = forebay.DeviceMemoryResource(0, {"ipc_enabled": True})
        mapped = forebay.DeviceMemoryResource.from_allocation_handle(0, int(resource.get_allocation_handle()))
        self.assertTrue(mapped.is_mapped)
        key = uuid.uuid4()
        with self.refused(RuntimeError):
            forebay.DeviceMemoryResource.from_registry(key)
        self.assertIs(mapped.register(key), mapped)
        self.assertIs(mapped.register(key), mapped)
        other = forebay.DeviceMemoryResource.from_allocation_handle(0, int(resource.get_allocation_handle()))
        self.assertIsNot(other, mapped)
        self.assertIs(other.register(key), mapped)
        self.assertIs(forebay.DeviceMemoryResource.from_registry(key), mapped)
        with self.refused(RuntimeError, "PinnedMemoryResource"):
            forebay.PinnedMemoryResource.from_registry(key)
        del other
        mapped.close()
        with self.refused(RuntimeError):
            forebay.DeviceMemoryResource.from_registry(key)

    def test_handles(self):
        resource = forebay.PinnedMemoryResource({"ipc_enabled": True})
        handle = resource.get_allocation_handle()
        self.assertIs(resource.get_allocation_handle(), handle)
        self.assertEqual(int(handle), handle.handle)
        self.assertFalse(os.get_inheritable(handle.handle))
        fd = handle.handle
        with handle:
            os.fstat(fd)
        self.assertEqual(handle.handle, -1)
        handle.close()
        with self.assertRaises(OSError):
            os.fstat(fd)
        with self.refused(ValueError, "closed"):
            int(handle)
        os.fstat(int(resource.get_allocation_handle()))  # a new one: the resource has the descriptor still
        with self.refused(TypeError, "multiprocessing"):
            pickle.dumps(resource.get_allocation_handle())
        with self.refused(RuntimeError):
            forebay.IPCAllocationHandle()

    def test_what_is_not_for_sharing(self):
        for resource in (
            forebay.DeviceMemoryResource(0),
            forebay.DeviceMemoryResource(0, {}),
            forebay.PinnedMemoryResource({}),
            forebay.VirtualMemoryResource(0, {"handle_type": None}),
        ):
            with self.subTest(resource=resource), resource.allocate(64) as buffer:
                self.assertFalse(resource.is_ipc_enabled)
                with self.refused(RuntimeError):
                    buffer.get_ipc_descriptor()
                if hasattr(resource, "get_allocation_handle"):
                    with self.refused(RuntimeError):
                        resource.get_allocation_handle()
                    with self.refused(RuntimeError):
                        resource.register(uuid.uuid4())

    def test_damaged_descriptors(self):
        for data in (b"", b"\0" * 10, b"\0" * 264, b"\0" * 1000):
            with self.refused(ValueError, "256"):
                forebay.IPCBufferDescriptor.from_bytes(data)
        with self.refused(ValueError, "other bytes"):
            forebay.IPCBufferDescriptor.from_bytes(b"\xff" * 256)
        with self.refused(TypeError, "IPCBufferDescriptor"):
            forebay.Buffer.from_ipc_descriptor(None, b"\0" * 256)
        with self.refused(RuntimeError):
            forebay.IPCBufferDescriptor()

    def test_a_descriptor_is_the_headers_and_its_size_is_the_memorys(self):
        pool = forebay.DeviceMemoryResource(0, {"ipc_enabled": True})
        mapped = forebay.DeviceMemoryResource.from_allocation_handle(0, int(pool.get_allocation_handle()))
        for resource, through in (
            (forebay.PoolMemoryResource(), None),
            (forebay.VirtualMemoryResource(0), None),
            (pool, mapped),
        ):
            with self.subTest(resource=resource), resource.allocate(4096) as buffer:
                data = bytes(buffer.get_ipc_descriptor())
                self.assertEqual((len(data), data[:7]), (256, b"FBAYMEM"))
                here = data.index(buffer.size.to_bytes(8, "little"))
                for forged in (1 << 40, 1 << 56):
                    other = data[:here] + forged.to_bytes(8, "little") + data[here + 8 :]
                    descriptor = forebay.IPCBufferDescriptor.from_bytes(other)
                    self.assertEqual(descriptor.size, forged)
                    with self.refused((ValueError, RuntimeError), str(forged)):
                        forebay.Buffer.from_ipc_descriptor(through, descriptor)
                for forged in (0, 1 << 62):
                    other = data[:here] + forged.to_bytes(8, "little") + data[here + 8 :]
                    with self.refused(ValueError, str(forged)):
                        forebay.IPCBufferDescriptor.from_bytes(other)
                with self.refused(ValueError, "256"):
                    forebay.IPCBufferDescriptor.from_bytes(data + (1 << 62).to_bytes(8, "little"))
                forebay.Buffer.from_ipc_descriptor(through, forebay.IPCBufferDescriptor.from_bytes(data)).close()

    def test_a_derived_class_maps_pools_as_its_own(self):
        class Device(forebay.DeviceMemoryResource):
            pass

        class Pinned(forebay.PinnedMemoryResource):
            pass

        for derived, resource, before in (
            (Device, forebay.DeviceMemoryResource(0, {"ipc_enabled": True}), (0,)),
            (Pinned, forebay.PinnedMemoryResource({"ipc_enabled": True}), ()),
        ):
            base, handle = type(resource), resource.get_allocation_handle()
            with self.subTest(derived):
                unnamed = derived.from_allocation_handle(*before, int(handle))
                self.assertIs(type(unnamed), derived)
                self.assertTrue(unnamed.is_mapped)
                mapped = derived.from_allocation_handle(*before, handle)
                self.assertIs(type(mapped), derived)
                self.assertIs(derived.from_allocation_handle(*before, handle), mapped)
                self.assertIs(base.from_allocation_handle(*before, handle), mapped)
                self.assertIs(base.from_registry(handle.uuid), mapped)
                self.assertIs(mapped.register(handle.uuid), mapped)
                del mapped
                first = base.from_allocation_handle(*before, handle)
                self.assertIs(type(first), base)
                again = derived.from_allocation_handle(*before, handle)
                self.assertIs(type(again), derived)
                self.assertEqual(again.handle, first.handle)
                self.assertIs(again.register(handle.uuid), first, "the one that was registered before")
                again.close()
                self.assertTrue(first.is_closed)

    def test_wrong_descriptors(self):
        for fd in (-1, 1 << 40):
            with self.refused(ValueError, "alloc_handle"):
                forebay.DeviceMemoryResource.from_allocation_handle(0, fd)
        with self.refused(TypeError, "alloc_handle"):
            forebay.PinnedMemoryResource.from_allocation_handle("3")
        with open(os.devnull) as file, self.refused((ValueError, RuntimeError)):
            forebay.PinnedMemoryResource.from_allocation_handle(file.fileno())
        with self.refused(TypeError, "uuid"):
            forebay.PinnedMemoryResource.from_registry("key")

    def test_serving_twice(self):
        forebay.serve()
        forebay.serve()


if __name__ == "__main__":
    unittest.main()
