"""Resources and buffers: allocate, fill, copy, look at the bytes, give them to another library.

FOREBAY_DRIVER=host python3 buffers.py     without a GPU
python3 buffers.py                         on one
"""

import forebay

SIZE = 1 << 20


def main() -> None:
    shared = forebay.Pool.shared()
    print(f"forebay {forebay.__version__}, driver {shared.driver}")

    # The pool that every framework in this process shares.
    pool = forebay.PoolMemoryResource(device_id=0)
    pinned = forebay.PinnedMemoryResource()
    with forebay.Stream(device=0) as stream:
        device = pool.allocate(SIZE, stream)
        device.fill(7, stream=stream)
        print(f"{device} of {device.memory_resource}")

        host = pinned.allocate(SIZE, stream)
        host.copy_from(device, stream=stream)
        view = host.as_memoryview()  # waits for the stream of `host`, where the copy was queued
        assert view[0] == view[-1] == 7 and len(view) == SIZE
        print(f"copied to the host: {view[:4].tolist()} ...")

        # The array is the buffer's own memory, and keeps it when the buffer is closed.
        try:
            import numpy
        except ImportError:
            print("numpy is not installed: no DLPack here")
        else:
            array = numpy.from_dlpack(host)
            view[1] = 42
            host.close()
            assert array[1] == 42 and array[2] == 7
            print(f"numpy sees the same bytes: {array[:4]}")
            del array
            back = forebay.Buffer.from_dlpack(numpy.arange(256, dtype=numpy.uint8))
            print(f"and the other way: {back}, sum {sum(back.as_memoryview())}")
        del view

        device.close()  # in the order of `stream`
        stream.sync()

    print(f"live {shared.stats().live} bytes, trimmed {shared.trim()} bytes")
    print("ok")


if __name__ == "__main__":
    main()
