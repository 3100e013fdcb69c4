"""Resources: what they say of themselves, their pools' attributes, virtual memory, resources written in Python."""

import copy
import dataclasses
import gc
import pickle
import sys
import threading
import unittest
import weakref

from forebay import _core
from support import MIB, Case, content, forebay, numpy_or_skip


def every_resource():
    """One of each kind."""
    return [
        forebay.DeviceMemoryResource(0),
        forebay.DeviceMemoryResource(0, {"max_size": 0}),
        forebay.PinnedMemoryResource(),
        forebay.PinnedMemoryResource(forebay.PinnedMemoryResourceOptions()),
        forebay.ManagedMemoryResource(),
        forebay.ManagedMemoryResource({}),
        forebay.VirtualMemoryResource(0),
        forebay.HostMemoryResource(portable=True, mapped=True),
        forebay.PoolMemoryResource(),
    ]


class Every(Case):
    def test_a_round(self):
        for resource in every_resource():
            with self.subTest(resource=resource):
                buffer = resource.allocate(1000)
                self.assertGreaterEqual(buffer.size, 1000)
                self.assertNotEqual(buffer.handle, 0)
                self.assertIs(buffer.memory_resource, resource)
                for name in ("device_id", "is_device_accessible", "is_host_accessible", "is_managed"):
                    self.assertEqual(getattr(buffer, name), getattr(resource, name), name)
                buffer.fill(3, stream=None)
                self.assertEqual(content(buffer, 1000), b"\x03" * 1000)
                buffer.close()
                self.assertTrue(buffer.is_closed)

    def test_no_bytes(self):
        for resource in every_resource():
            if isinstance(resource, forebay.VirtualMemoryResource):
                continue
            with self.subTest(resource=resource), resource.allocate(0) as buffer:
                self.assertEqual((buffer.handle, buffer.size), (0, 0))

    def test_closed_ones_give_nothing_and_their_buffers_live(self):
        for resource in every_resource():
            if not resource.is_handle_owned:
                continue
            with self.subTest(resource=resource):
                buffer = resource.allocate(64)
                resource.close()
                resource.close()
                self.assertTrue(resource.is_closed)
                with self.refused(RuntimeError):
                    resource.allocate(64)
                buffer.fill(1, stream=None)
                self.assertEqual(content(buffer, 64), b"\x01" * 64)
                buffer.close()

    def test_a_pool_that_is_not_owned_survives_its_close(self):
        resource = forebay.DeviceMemoryResource(0)
        self.assertFalse(resource.is_handle_owned)
        handle = resource.handle
        resource.close()
        again = forebay.DeviceMemoryResource(0)
        self.assertEqual(again.handle, handle)
        again.allocate(64).close()

    def test_a_buffer_outlives_its_resource(self):
        buffer = forebay.DeviceMemoryResource(0, {}).allocate(64)
        gc.collect()
        self.assertIsInstance(buffer.memory_resource, forebay.DeviceMemoryResource)
        buffer.close()
        self.assertIsNone(buffer.memory_resource)

    def test_threads(self):
        resource, errors = forebay.DeviceMemoryResource(0, {}), []

        def work(number):
            try:
                for size in range(1, 200):
                    with resource.allocate(size * 16) as buffer:
                        buffer.fill(number, stream=None)
                        self.assertEqual(buffer.size, size * 16)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])


class Pointers(Case):
    """Memory without a buffer, as C programs have it."""

    def pointer(self, resource, size, stream=None):
        return _core.resource_allocate_pointer(resource._handle, size, 0 if stream is None else stream.handle)

    def test_memory_of_an_open_buffer_is_not_taken(self):
        with forebay.Stream() as stream:
            for resource in every_resource():
                with self.subTest(resource=resource), resource.allocate(4096) as buffer:
                    for named in (None, stream):
                        with self.refused(ValueError, "buffer is closed", hex(buffer.handle)):
                            resource.deallocate(buffer.handle, 4096, named)
                    made = forebay.Buffer.from_handle(self.pointer(resource, 4096), 4096, resource)
                    with self.refused(ValueError, "buffer is closed"):
                        resource.deallocate(made.handle, 4096)
                    with resource.allocate(4096) as other:
                        self.assertEqual(len({buffer.handle, made.handle, other.handle}), 3, "two open buffers on one block")
                    made.close()

    def test_the_allocations_stream_is_the_default(self):
        resource = forebay.PoolMemoryResource(0, forebay.Pool())
        with forebay.Stream() as stream:
            pointer = self.pointer(resource, 4096, stream)
            resource.deallocate(pointer, 4096)
            with resource.allocate(4096) as other, resource.allocate(4096, stream) as same:
                self.assertNotEqual(other.handle, pointer, "work of the other stream may still write there")
                self.assertEqual(same.handle, pointer)
            pointer = self.pointer(resource, 4096)
            resource.deallocate(pointer, 4096, stream)
            with self.refused(ValueError, "buffer is closed"):
                resource.deallocate(pointer, 4096)
            resource.deallocate(0, 0)


class Flags(Case):
    def test_only_yes_and_no_are_taken(self):
        makers = {
            "ipc_enabled": (
                lambda value: forebay.DeviceMemoryResource(0, {"ipc_enabled": value}),
                lambda value: forebay.PinnedMemoryResource(forebay.PinnedMemoryResourceOptions(ipc_enabled=value)),
            ),
            "gpu_direct_rdma": (lambda value: forebay.VirtualMemoryResource(0, {"gpu_direct_rdma": value}),),
            "portable": (lambda value: forebay.HostMemoryResource(portable=value),),
            "mapped": (lambda value: forebay.HostMemoryResource(mapped=value),),
            "write_combined": (lambda value: forebay.HostMemoryResource(write_combined=value),),
            "pinned": (lambda value: forebay.Pool(pinned=value),),
        }
        for name, makes in makers.items():
            for make in makes:
                for wrong in ("no", "", b"", None, 0, 1, 2, 0.0, [], object()):
                    with self.subTest(name=name, value=wrong), self.refused(TypeError, name, repr(wrong), "True or False"):
                        make(wrong)
                make(False)

    def test_numpys_are_taken(self):
        numpy = numpy_or_skip()
        for value in (False, True):
            self.assertEqual(forebay.PinnedMemoryResource({"ipc_enabled": numpy.bool_(value)}).is_ipc_enabled, value)
        with self.refused(TypeError, "ipc_enabled"):
            forebay.PinnedMemoryResource({"ipc_enabled": numpy.int8(1)})


class Options(Case):
    """Options as objects of another library, and iterators in them."""

    def test_of_the_same_name_and_fields(self):
        for name, make, values in (
            ("DeviceMemoryResourceOptions", lambda given: forebay.DeviceMemoryResource(0, given), {"max_size": 4 * MIB}),
            ("PinnedMemoryResourceOptions", forebay.PinnedMemoryResource, {"ipc_enabled": True, "numa_id": None}),
            ("ManagedMemoryResourceOptions", forebay.ManagedMemoryResource, {"preferred_location": 0}),
            ("VirtualMemoryResourceOptions", lambda given: forebay.VirtualMemoryResource(0, given), {"handle_type": None}),
        ):
            with self.subTest(name):
                theirs = dataclasses.make_dataclass(name, values, namespace={"__module__": "cuda.core"})
                make(theirs(**values)).allocate(64).close()
                unknown = dataclasses.make_dataclass(name, ["novelty"])(5)
                with self.refused(TypeError, f".{name} with novelty, which Forebay does not know", f"forebay.{name}"):
                    make(unknown)
                with self.refused(TypeError, "options is a int: it must be a forebay." + name):
                    make(5)
                with self.refused(TypeError, f".{name}: it must be a forebay.{name}"):
                    make(type(name, (), {})())
        taken = dataclasses.make_dataclass("PinnedMemoryResourceOptions", ["ipc_enabled"])
        with self.refused(TypeError, "ipc_enabled", "'no'"):
            forebay.PinnedMemoryResource(taken("no"))

    def test_cuda_cores_own(self):
        try:
            import cuda.core as core
        except ImportError as error:
            raise unittest.SkipTest(f"cuda.core is not installed: {error}") from None
        for resource in (
            forebay.PinnedMemoryResource(core.PinnedMemoryResourceOptions(ipc_enabled=True)),
            forebay.DeviceMemoryResource(0, core.DeviceMemoryResourceOptions(max_size=4 * MIB)),
            forebay.ManagedMemoryResource(core.ManagedMemoryResourceOptions(preferred_location=0)),
            forebay.VirtualMemoryResource(0, core.VirtualMemoryResourceOptions(peers=iter([]))),
        ):
            with self.subTest(resource=resource):
                resource.allocate(64).close()
        virtual = forebay.VirtualMemoryResource(0)
        with virtual.allocate(64) as buffer:
            virtual.modify_allocation(buffer, buffer.size + 1, core.VirtualMemoryResourceOptions())

    def test_a_generator_of_peers_is_there_at_every_use(self):
        self.two_devices(
            """
            import pickle
            def peers(): yield from (1,)
            changed = forebay.VirtualMemoryResourceOptions()
            changed.peers = map(int, "1")
            theirs = dataclasses.make_dataclass("VirtualMemoryResourceOptions", ["peers"])(peers())
            given = [forebay.VirtualMemoryResourceOptions(peers=peers()), {"peers": peers()}, changed, theirs]
            for options in given:
                for number in range(3):
                    resource = forebay.VirtualMemoryResource(0, options)
                    assert resource.peer_access(1) == "rw", (options, number)
                    with resource.allocate(64) as buffer:
                        for _ in range(2):
                            resource.modify_allocation(buffer, buffer.size + 1, options)
                        with forebay.Stream(1) as stream:
                            buffer.fill(1, stream=stream)
                again = pickle.loads(pickle.dumps(resource))
                assert again.peer_access(1) == "rw", options
            resource = forebay.DeviceMemoryResource(0, {})
            resource.peer_accessible_by = peers()
            assert set(resource.peer_accessible_by) == {1}
            """
        )


class Pinned(Case):
    def test_streams_of_every_device(self):
        self.two_devices(
            """
            size = 2 << 20
            def resources():
                yield forebay.PinnedMemoryResource()
                yield forebay.PinnedMemoryResource({})
                yield forebay.PinnedMemoryResource({"ipc_enabled": True})
                yield forebay.PinnedMemoryResource({"numa_id": 0, "max_size": 64 << 20})
                yield forebay.ManagedMemoryResource()
                yield forebay.HostMemoryResource()
                yield forebay.PoolMemoryResource(0, forebay.Pool(pinned=True))
                yield forebay.VirtualMemoryResource(0, {"location_type": "host_numa", "handle_type": None, "peers": [1]})
                yield forebay.VirtualMemoryResource(0, {"peers": [1]})
            streams = forebay.Stream(0), forebay.Stream(1)
            for resource in resources():
                for own, other in (streams, streams[::-1]):
                    there = forebay.PoolMemoryResource(other.device_id).allocate(size, other)
                    buffer, back = resource.allocate(size, other), resource.allocate(size, own)
                    buffer.fill(7, stream=other)
                    buffer.fill(bytes((8, 9)), stream=other)
                    there.copy_from(buffer, stream=other)
                    other.sync()
                    back.copy_from(there, stream=other)
                    other.sync()
                    with buffer.copy_to(stream=other) as third:
                        other.sync()
                        back.copy_from(third, stream=own)
                        own.sync()
                    if resource.is_host_accessible:
                        assert bytes(back.as_memoryview()) == bytes((8, 9)) * (size // 2), resource
                    buffer.close(own)
                    back.close(other)
                    there.close()
                for stream in streams:
                    stream.sync()
                forebay._stream.synchronize(0, 0)  # memory that was viewed goes back there
                if hasattr(resource, "attributes"):
                    assert resource.attributes.used_mem_current == 0, resource
            """
        )

    def test_a_mapped_pool_lies_where_it_lies(self):
        host = forebay.Pool.shared().driver == "host"
        for numa_id in (0, 1) if host else (0,):
            resource = forebay.PinnedMemoryResource({"ipc_enabled": True, "numa_id": numa_id})
            mapped = forebay.PinnedMemoryResource.from_allocation_handle(resource.get_allocation_handle())
            self.assertEqual((mapped.is_mapped, mapped.numa_id), (True, numa_id))
            # Without its name, CUDA tells from 13.1 on.
            unnamed = forebay.PinnedMemoryResource.from_allocation_handle(int(resource.get_allocation_handle()))
            self.assertIn(unnamed.numa_id, (numa_id,) if host else (numa_id, -1))

    def test_what_it_is(self):
        resource = forebay.PinnedMemoryResource({"ipc_enabled": True})
        self.assertEqual(resource.device_id, -1)
        self.assertTrue(resource.is_device_accessible and resource.is_host_accessible and resource.is_handle_owned)
        self.assertTrue(resource.is_ipc_enabled and resource.uuid is not None and not resource.is_mapped)
        self.assertGreaterEqual(resource.numa_id, 0)
        current = forebay.PinnedMemoryResource()
        self.assertFalse(current.is_handle_owned or current.is_ipc_enabled)
        self.assertIsNone(current.uuid)

    def test_numa_id(self):
        self.assertEqual(forebay.PinnedMemoryResource({"numa_id": 0}).numa_id, 0)
        self.assertEqual(forebay.PinnedMemoryResource({}).numa_id, -1)


class Managed(Case):
    def test_preferred_location(self):
        for options, expected in (
            (None, None),
            ({}, None),
            ({"preferred_location": 0}, ("device", 0)),
            ({"preferred_location": -1}, ("host", None)),
            ({"preferred_location_type": "host"}, ("host", None)),
            ({"preferred_location": 0, "preferred_location_type": "host_numa"}, ("host_numa", 0)),
            ({"preferred_location": 0, "preferred_location_type": "device"}, ("device", 0)),
        ):
            with self.subTest(options=options):
                self.assertEqual(forebay.ManagedMemoryResource(options).preferred_location, expected)

    def test_contradictions(self):
        for options in (
            {"preferred_location": -2},
            {"preferred_location": 0, "preferred_location_type": "host"},
            {"preferred_location_type": "device"},
            {"preferred_location_type": "moon"},
            {"preferred_location": -1, "preferred_location_type": "host_numa"},
        ):
            with self.subTest(options=options), self.refused(ValueError, "preferred_location"):
                forebay.ManagedMemoryResource(options)


class Attributes(Case):
    def test_flags(self):
        attributes = forebay.DeviceMemoryResource(0, {}).attributes
        for name in ("follow_event_dependencies", "allow_opportunistic", "allow_internal_dependencies"):
            for value in (False, True):
                setattr(attributes, f"reuse_{name}", value)
                self.assertIs(getattr(attributes, f"reuse_{name}"), value)

    def test_bytes(self):
        resource = forebay.DeviceMemoryResource(0, {})
        attributes = resource.attributes
        attributes.release_threshold = 64 * MIB
        self.assertEqual(attributes.release_threshold, 64 * MIB)
        with forebay.Stream() as stream:
            buffer = resource.allocate(MIB, stream)
            self.assertGreaterEqual(attributes.used_mem_current, MIB)
            self.assertGreaterEqual(attributes.reserved_mem_current, attributes.used_mem_current)
            buffer.close(stream)
            stream.sync()  # or the memory may still be in use
        self.assertGreaterEqual(attributes.used_mem_high, MIB)
        attributes.used_mem_high = 0
        attributes.reserved_mem_high = 0
        self.assertLess(attributes.used_mem_high, MIB)

    def test_what_cannot_be_written(self):
        attributes = forebay.DeviceMemoryResource(0, {}).attributes
        for name in ("used_mem_current", "reserved_mem_current", "used_mem_high", "reserved_mem_high"):
            with self.subTest(name=name), self.refused(ValueError):
                setattr(attributes, name, 1)

    def test_it_is_not_made_directly(self):
        with self.refused(RuntimeError):
            forebay._MemPoolAttributes()


class Peers(Case):
    def test_own_and_unknown(self):
        resource = forebay.DeviceMemoryResource(0, {})
        self.assertEqual(resource.peer_access(0), "rw")
        for access in ("x", 1, True):
            with self.subTest(access=access), self.refused(ValueError, "access"):
                resource.set_peer_access(0, access)
        for call in (lambda: resource.peer_access(1 << 20), lambda: resource.set_peer_access(1 << 20, "rw")):
            with self.refused(ValueError):
                call()
        with self.refused(ValueError):
            resource.set_peer_access(0, None)
        self.assertEqual(resource.peer_access(0), "rw")


class Virtual(Case):
    def test_grows_in_place_and_keeps_its_bytes(self):
        resource = forebay.VirtualMemoryResource(0)
        buffer = resource.allocate(MIB)
        first = buffer.size
        self.assertGreaterEqual(first, MIB)
        buffer.fill(5, stream=None)
        for size in (first + 1, 3 * first, 16 * first):
            self.assertIs(resource.modify_allocation(buffer, size), buffer)
            self.assertGreaterEqual(buffer.size, size)
            self.assertEqual(content(buffer, first), b"\x05" * first)
        resource.modify_allocation(buffer, 1)
        self.assertEqual(buffer.size, first)
        self.assertEqual(content(buffer), b"\x05" * first)
        buffer.close()

    def test_a_tensor_keeps_the_size(self):
        resource = forebay.VirtualMemoryResource(0)
        buffer = resource.allocate(MIB)
        capsule = buffer.__dlpack__()
        with self.refused(RuntimeError) as context:
            resource.modify_allocation(buffer, buffer.size + 1)
        self.assertEqual(context.exception.status, forebay.Status.BUSY)
        del capsule
        resource.modify_allocation(buffer, buffer.size + 1)
        buffer.close()

    def test_options_for_the_new_part(self):
        resource = forebay.VirtualMemoryResource(0)
        with resource.allocate(1) as buffer:
            resource.modify_allocation(buffer, buffer.size + 1, forebay.VirtualMemoryResourceOptions(self_access="rw"))
            resource.modify_allocation(buffer, buffer.size + 1, config={"granularity": "minimum"})

    def test_options_are_kept(self):
        options = forebay.VirtualMemoryResourceOptions(granularity="minimum", handle_type=None)
        resource = forebay.VirtualMemoryResource(0, options)
        self.assertIs(resource.config, options)
        self.assertFalse(resource.is_ipc_enabled)
        self.assertTrue(forebay.VirtualMemoryResource(0).is_ipc_enabled)

    def test_words_that_are_none(self):
        for name in ("allocation_type", "location_type", "handle_type", "granularity", "self_access", "peer_access"):
            with self.subTest(name=name), self.refused(ValueError, name, "moon"):
                forebay.VirtualMemoryResource(0, {name: "moon"})

    def test_windows(self):
        for word in ("win32", "win32_kmt", "generic"):
            with self.subTest(word=word), self.refused(NotImplementedError) as context:
                forebay.VirtualMemoryResource(0, {"handle_type": word})
            self.assertIsInstance(context.exception, RuntimeError)

    def test_another_resources_buffer(self):
        resource = forebay.VirtualMemoryResource(0)
        with forebay.DeviceMemoryResource(0).allocate(64) as buffer:
            with self.refused(ValueError):
                resource.modify_allocation(buffer, MIB)
            self.assertEqual(buffer.size, 64)
        closed = resource.allocate(64)
        closed.close()
        with self.refused(RuntimeError):
            resource.modify_allocation(closed, MIB)
        with self.refused(TypeError, "Buffer"):
            resource.modify_allocation(7, MIB)

    def test_host_memory(self):
        resource = forebay.VirtualMemoryResource(0, {"location_type": "host_numa", "handle_type": None})
        self.assertTrue(resource.is_host_accessible)
        self.assertEqual(resource.device_id, -1)
        with resource.allocate(64) as buffer:
            buffer.as_memoryview()[0] = 9
            self.assertEqual(content(buffer, 1), b"\x09")


class Pools(Case):
    def test_the_shared_one(self):
        pool = forebay.Pool.shared()
        resource = forebay.PoolMemoryResource(0)
        before = pool.stats().live
        with resource.allocate(MIB):
            self.assertEqual(pool.stats().live, before + MIB)
        self.assertEqual(pool.stats().live, before)

    def test_a_limit(self):
        pool = forebay.Pool(limit=8 * MIB)
        self.assertEqual(pool.limit(), 8 * MIB)
        resource = forebay.PoolMemoryResource(0, pool)
        with self.refused(MemoryError, "limit"):
            resource.allocate(16 * MIB)
        pool.set_limit(32 * MIB)
        with resource.allocate(16 * MIB):
            self.assertIn("live", pool.report())
        self.assertGreater(pool.trim(), 0)
        self.assertEqual(pool.stats().physical, 0)
        self.assertEqual(pool.stats().out_of_memory, 1)

    def test_pinned(self):
        pool = forebay.Pool(pinned=True)
        resource = forebay.PoolMemoryResource(0, pool)
        self.assertTrue(resource.is_host_accessible and resource.is_device_accessible)
        with resource.allocate(64) as buffer:
            buffer.as_memoryview()[:2] = b"ab"
            self.assertEqual(content(buffer, 2), b"ab")
        with self.refused(ValueError, "numa_id"):
            forebay.Pool(numa_id=0)

    def test_a_pool_lives_as_long_as_its_buffers(self):
        buffer = forebay.PoolMemoryResource(0, forebay.Pool()).allocate(64)
        gc.collect()
        buffer.fill(1, stream=None)
        self.assertEqual(content(buffer, 64), b"\x01" * 64)
        buffer.close()


class Written(forebay.MemoryResource):
    """A resource in Python over another one: counts what it gives."""

    def __init__(self):
        self.below, self.calls = forebay.PinnedMemoryResource(), []
        self.kept = {}

    def allocate(self, size, stream=None):
        inner = self.below.allocate(size, stream)
        self.kept[inner.handle] = inner
        return forebay.Buffer.from_handle(inner.handle, size, self, stream=stream)

    def deallocate(self, ptr, size, stream=None):
        self.calls.append((ptr, size, stream))
        self.kept.pop(ptr).close(stream)

    device_id = -1
    is_device_accessible = True
    is_host_accessible = True


class InPython(Case):
    def test_close_calls_deallocate_once(self):
        resource = Written()
        stream = forebay.Stream()
        buffer = resource.allocate(64)
        address = buffer.handle
        self.assertIs(buffer.memory_resource, resource)
        self.assertEqual(buffer.device_id, -1)
        self.assertTrue(buffer.is_host_accessible)
        buffer.close(stream)
        buffer.close()
        self.assertEqual(resource.calls, [(address, 64, stream)])

    def test_the_allocations_stream_is_the_default(self):
        resource, stream = Written(), forebay.Stream()
        resource.allocate(64, stream).close()
        self.assertIs(resource.calls[0][2], stream)

    def test_collection_calls_it_too(self):
        resource = Written()
        resource.allocate(64)
        gc.collect()
        self.assertEqual(len(resource.calls), 1)
        self.assertEqual(resource.kept, {})

    def test_copy_to_allocates_from_it(self):
        resource = Written()
        with resource.allocate(64) as buffer:
            buffer.fill(6, stream=None)
            with buffer.copy_to(stream=None) as copy:
                self.assertIs(copy.memory_resource, resource)
                self.assertEqual(content(copy), b"\x06" * 64)
        self.assertEqual(len(resource.calls), 2)

    def test_a_view_delays_it(self):
        resource = Written()
        buffer = resource.allocate(64)
        view = buffer.as_memoryview()
        buffer.close()
        self.assertEqual(resource.calls, [])
        view[0] = 1
        del view
        gc.collect()
        self.assertEqual(len(resource.calls), 1)

    def test_what_it_raises_is_raised_by_close(self):
        class Broken(Written):
            def deallocate(self, ptr, size, stream=None):
                super().deallocate(ptr, size, stream)
                raise KeyError("broken")

        with self.assertRaises(KeyError):
            Broken().allocate(64).close()
        seen, hook = [], sys.unraisablehook
        sys.unraisablehook = seen.append
        try:
            Broken().allocate(64)
            gc.collect()
        finally:
            sys.unraisablehook = hook
        self.assertEqual([type(entry.exc_value) for entry in seen], [KeyError])

    def test_it_must_define_both(self):
        class Half(forebay.MemoryResource):
            def allocate(self, size, stream=None):
                raise MemoryError

        with self.refused(TypeError, "deallocate"):
            Half()

    def test_nothing_is_kept(self):
        resource = Written()
        resource.allocate(64).close()
        watch = weakref.ref(resource)
        del resource
        gc.collect()
        self.assertIsNone(watch())


class Copies(Case):
    def test_what_is_of_the_process_is_not_copied(self):
        with forebay.Stream() as stream:
            for thing in (forebay.Pool.shared(), stream):
                for copying in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(TypeError, "cannot be copied"):
                        copying(thing)


class PeerSets(Case):
    """Needs two devices: `FOREBAY_HOST_DEVICES` gives the host driver more than one."""

    def test_a_set_of_devices(self):
        if forebay.Pool.shared().device_count < 2:
            self.skipTest("there is one device")
        for resource in (forebay.DeviceMemoryResource(0, {}), forebay.PoolMemoryResource(0)):
            with self.subTest(resource=resource):
                peers = resource.peer_accessible_by
                self.assertEqual(set(peers), set())
                resource.peer_accessible_by = [0, 1]
                self.assertEqual(set(peers), {1})
                self.assertIn(1, peers)
                self.assertNotIn(0, peers)
                self.assertNotIn("one", peers)
                peers.discard(1)
                peers.discard(1)
                self.assertEqual(len(peers), 0)
                peers.add(1)
                self.assertEqual(resource.peer_access(1), "rw")
                resource.peer_accessible_by = ()
                self.assertIsNone(resource.peer_access(1))
                with self.refused(ValueError):
                    peers.add(64)


if __name__ == "__main__":
    unittest.main()
