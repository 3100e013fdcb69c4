"""What the other process does in `test_ipc`. Spawned, so it imports this by name."""

import os

from support import content, forebay


def fill(buffer, value, answers):
    """Fills a buffer that came as a buffer."""
    try:
        assert buffer.is_mapped, "not mapped"
        assert buffer.ipc_path in ("pool", "fd"), buffer.ipc_path
        with forebay.Stream() as stream:
            buffer.fill(value, stream=stream)
            stream.sync()
        answers.put(("ok", buffer.size))
        buffer.close()
        buffer.close()
    except BaseException as error:
        answers.put((type(error).__name__, str(error)))


def by_descriptor(data, value, answers):
    """Imports a descriptor that came as bytes, with no resource."""
    try:
        buffer = forebay.Buffer.from_ipc_descriptor(None, forebay.IPCBufferDescriptor.from_bytes(data))
        fill(buffer, value, answers)
    except BaseException as error:
        answers.put((type(error).__name__, str(error)))


def by_handle(kind, handle, node, data, value, answers):
    """Maps the pool by its descriptor, twice, then imports a buffer of it."""
    try:
        arguments = (0, handle) if kind == "DeviceMemoryResource" else (handle,)
        mapped = getattr(forebay, kind).from_allocation_handle(*arguments)
        assert mapped.is_mapped and mapped.is_ipc_enabled and mapped.uuid == handle.uuid, mapped
        assert getattr(mapped, "numa_id", None) == node, mapped.numa_id
        assert getattr(forebay, kind).from_allocation_handle(*arguments) is mapped
        assert getattr(forebay, kind).from_registry(handle.uuid) is mapped
        assert mapped.register(handle.uuid) is mapped
        try:
            mapped.allocate(64)
        except RuntimeError:
            pass
        else:
            raise AssertionError("a mapped resource allocates")
        handle.close()
        descriptor = forebay.IPCBufferDescriptor.from_bytes(data)
        buffer = forebay.Buffer.from_ipc_descriptor(mapped, descriptor)
        assert buffer.memory_resource is mapped
        fill(buffer, value, answers)
    except BaseException as error:
        answers.put((type(error).__name__, str(error)))


def by_resource(resource, pickled, value, answers):
    """Gets the resource through multiprocessing, then buffers by plain pickle."""
    import pickle

    try:
        fill(pickle.loads(pickled), value, answers)
        assert resource.is_mapped
    except BaseException as error:
        answers.put((type(error).__name__, str(error)))


def export_and_leave(pipe):
    """Sends a descriptor and ends: its memory is gone with it."""
    buffer = forebay.VirtualMemoryResource(0).allocate(1 << 20)
    pipe.send(bytes(buffer.get_ipc_descriptor()))
    pipe.recv()
    os._exit(0)


def see(buffer, answers):
    """Answers the first bytes."""
    answers.put(content(buffer, 4))
