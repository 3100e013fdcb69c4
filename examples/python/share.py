"""Two processes, one memory: the parent allocates, the child fills it, the parent sees it.

    FOREBAY_DRIVER=host python3 share.py     without a GPU
    python3 share.py                         on one

The processes are spawned: CUDA does not work in a child of fork().
"""

import multiprocessing

import forebay

SIZE = 1 << 20


def child(buffers, done) -> None:
    """Gets the buffers as buffers: multiprocessing brought the pool's descriptor, and the import is done."""
    with forebay.Stream() as stream:
        for number, buffer in enumerate(buffers):
            assert buffer.is_mapped and buffer.size >= SIZE, buffer
            buffer.fill(number + 1, stream=stream)
        stream.sync()
    for buffer in buffers:
        buffer.close()
    done.set()


def main() -> None:
    print(f"forebay {forebay.__version__}, driver {forebay.Pool.shared().driver}")
    sources = {
        "a driver pool, by its file descriptor": forebay.DeviceMemoryResource(0, {"ipc_enabled": True}),
        "virtual memory, by its physical memory": forebay.VirtualMemoryResource(0),
        "the shared pool, whatever framework allocated": forebay.PoolMemoryResource(0),
    }
    with forebay.Stream() as stream:
        buffers = [source.allocate(SIZE, stream) for source in sources.values()]
        for buffer in buffers:
            buffer.fill(0, stream=stream)
        stream.sync()  # the child uses the memory on a stream of its own

    spawn = multiprocessing.get_context("spawn")
    done = spawn.Event()
    process = spawn.Process(target=child, args=(buffers, done))
    process.start()
    process.join(60)
    if process.exitcode != 0 or not done.is_set():
        raise SystemExit(f"the child ended with {process.exitcode}")

    pinned = forebay.PinnedMemoryResource()
    for number, (what, buffer) in enumerate(zip(sources, buffers)):
        with pinned.allocate(buffer.size) as seen:
            seen.copy_from(buffer, stream=None)
            view = seen.as_memoryview()
            assert view[0] == view[SIZE - 1] == number + 1, (what, view[0])
            print(f"  shared {what}: the child wrote {view[0]}")
            del view
        buffer.close()
    print("ok")


if __name__ == "__main__":
    main()
