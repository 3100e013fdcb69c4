"""Devices and sizes are taken in the same ways by every function that has one."""

import types
import unittest

from support import MIB, Case, forebay

#: A device 0 as each framework has it.
DEVICES = {
    "a number": 0,
    "a text": "cuda:0",
    "torch.device": type("device", (), {"type": "cuda", "index": 0, "__str__": lambda self: "cuda:0"})(),
    "cupy.cuda.Device": types.SimpleNamespace(id=0),
    "cuda.core.Device": types.SimpleNamespace(device_id=0),
    "a device of Numba": types.SimpleNamespace(id=0, primary_context=None),
    "a context of Numba": types.SimpleNamespace(device=types.SimpleNamespace(id=0)),
}
NO_DEVICES = {"cpu": ValueError, "cuda": ValueError, "0": ValueError, 0.5: TypeError, None: TypeError, True: TypeError}
SIZES = {2 * MIB: 2 * MIB, "2M": 2 * MIB, " 2048k ": 2 * MIB, "2097152": 2 * MIB}
NO_SIZES = {"2X": ValueError, "": ValueError, "-2M": ValueError, "1.5G": ValueError, "20000000T": ValueError, 1.5: TypeError}


def frameworks():
    """The same devices as the frameworks that are installed have them."""
    try:
        import torch

        yield "torch", torch.device("cuda:0")
    except ImportError:
        pass
    try:
        import cupy

        yield "cupy", cupy.cuda.Device(0)
    except (ImportError, RuntimeError):
        pass


class Devices(Case):
    def functions(self):
        pool, resource, stream = forebay.Pool.shared(), forebay.PoolMemoryResource(), forebay.Stream()
        queue = stream.handle
        return {
            "Stream": forebay.Stream,
            "register_stream": lambda device: (
                forebay.register_stream(queue, device, forebay.Pool()),
                stream,
            ),
            "DeviceMemoryResource": forebay.DeviceMemoryResource,
            "DeviceMemoryResource, options": lambda device: forebay.DeviceMemoryResource(device, {}),
            "DeviceMemoryResource.from_pool": forebay.DeviceMemoryResource.from_pool,
            "PoolMemoryResource": forebay.PoolMemoryResource,
            "VirtualMemoryResource": forebay.VirtualMemoryResource,
            "VirtualMemoryResource, peers": lambda device: forebay.VirtualMemoryResource(0, {"peers": [device]}),
            "ManagedMemoryResourceOptions": lambda device: forebay.ManagedMemoryResource(
                {"preferred_location": device, "preferred_location_type": "device"}
            ),
            "peer_access": resource.peer_access,
            "peer_accessible_by": lambda device: resource.peer_accessible_by.replace([device]),
            "Pool.stats": pool.stats,
            "Pool.reset_peaks": pool.reset_peaks,
            "Pool.trim": lambda device: pool.trim("1T", device),
            "Pool.limit": pool.limit,
            "Pool.set_limit": lambda device: forebay.Pool().set_limit(0, device),
            "Pool.memory_info": pool.memory_info,
            "Pool.report": pool.report,
            "pressure.relieve": lambda device: forebay.pressure.relieve(device, 0),
        }

    def test_every_function_takes_every_kind(self):
        for name, function in self.functions().items():
            for kind, device in [*DEVICES.items(), *frameworks()]:
                with self.subTest(function=name, device=kind):
                    function(device)

    def test_every_function_refuses_what_is_none(self):
        for name, function in self.functions().items():
            for device, error in NO_DEVICES.items():
                if device is None and name == "ManagedMemoryResourceOptions":
                    continue  # no preference, which does not go with the type
                with self.subTest(function=name, device=device), self.assertRaises(error):
                    function(device)


class Sizes(Case):
    def functions(self):
        def modified(size):
            resource = forebay.VirtualMemoryResource(0)
            with resource.allocate(2 * MIB) as buffer:
                return resource.modify_allocation(buffer, size).size

        def limited(size):
            pool = forebay.Pool()
            pool.set_limit(size)
            return pool.limit()

        def threshold(size):
            attributes = forebay.DeviceMemoryResource(0, {}).attributes
            attributes.release_threshold = size
            return attributes.release_threshold

        def allocated(resource):
            def allocate(size):
                with resource.allocate(size) as buffer:
                    return buffer.size

            return allocate

        return {
            "Buffer.from_handle": lambda size: forebay.Buffer.from_handle(0x1000, size).size,
            "Pool": lambda size: forebay.Pool(limit=size).limit(),
            "Pool.set_limit": limited,
            "Pool.trim": lambda size: forebay.Pool().trim(size) and None,
            "allocate, pool": allocated(forebay.PoolMemoryResource()),
            "allocate, device": allocated(forebay.DeviceMemoryResource(0)),
            "allocate, pinned": allocated(forebay.PinnedMemoryResource({})),
            "allocate, managed": allocated(forebay.ManagedMemoryResource({})),
            "allocate, virtual": allocated(forebay.VirtualMemoryResource(0)),
            "allocate, host": allocated(forebay.HostMemoryResource()),
            "deallocate": lambda size: forebay.PoolMemoryResource().deallocate(0, size),
            "trim": lambda size: forebay.DeviceMemoryResource(0, {}).trim(size),
            "modify_allocation": modified,
            "release_threshold": threshold,
            "DeviceMemoryResourceOptions": lambda size: forebay.DeviceMemoryResource(0, {"max_size": size}) and None,
            "PinnedMemoryResourceOptions": lambda size: forebay.PinnedMemoryResource({"max_size": size}) and None,
            "VirtualMemoryResourceOptions": lambda size: forebay.VirtualMemoryResource(0, {"addr_align": size}) and None,
            "pressure.relieve": lambda size: forebay.pressure.relieve(0, size) and None,
        }

    def test_every_function_takes_every_kind(self):
        for name, function in self.functions().items():
            for size, expected in SIZES.items():
                with self.subTest(function=name, size=size):
                    self.assertIn(function(size), (expected, None, 0))

    def test_every_function_refuses_what_is_none(self):
        for name, function in [*self.functions().items(), ("export_foreign", lambda size: forebay.export_foreign(0, size))]:
            for size, error in NO_SIZES.items():
                with self.subTest(function=name, size=size), self.assertRaises(error):
                    function(size)


if __name__ == "__main__":
    unittest.main()
