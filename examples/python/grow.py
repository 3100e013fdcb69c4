"""A buffer that grows and keeps what it holds, as a cache of unknown length does.

FOREBAY_DRIVER=host python3 grow.py     without a GPU
python3 grow.py                         on one
"""

import forebay

MIB = 1 << 20


def main() -> None:
    print(f"forebay {forebay.__version__}, driver {forebay.Pool.shared().driver}")
    resource = forebay.VirtualMemoryResource(0, {"handle_type": None})
    pinned = forebay.PinnedMemoryResource()
    buffer = resource.allocate(MIB)
    buffer.fill(b"\x11\x22", stream=None)
    written, moves = buffer.size, 0
    print(f"{buffer}: sizes are rounded up to {buffer.size // MIB} MiB")

    for size in (4 * MIB, 16 * MIB, 64 * MIB):
        address = buffer.handle
        resource.modify_allocation(buffer, size)
        moves += buffer.handle != address
        print(f"grown to {buffer.size // MIB} MiB, {'moved' if buffer.handle != address else 'where it was'}")

    # The first bytes are what they were; nothing was copied for it.
    with pinned.allocate(written) as seen, forebay.Buffer.from_handle(buffer.handle, written, owner=buffer) as head:
        seen.copy_from(head, stream=None)
        view = seen.as_memoryview()
        assert bytes(view[:2]) == bytes(view[-2:]) == b"\x11\x22"
        del view
    buffer.close()
    print(f"the bytes are still there; it moved {moves} times")
    print("ok")


if __name__ == "__main__":
    main()
