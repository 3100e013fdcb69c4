"""Two frameworks on one pool, with no GPU and neither framework installed.

The calls are the very ones that PyTorch and CuPy make through their hooks; the driver is the host driver, whose
"device" is 256 MiB of this machine's memory. Each framework wants 160 MiB of it, one after the other: with a cache
each, the second would find the device full.
"""

import ctypes
import os

os.environ.setdefault("FOREBAY_DRIVER", "host")
os.environ.setdefault("FOREBAY_HOST_CAPACITY", "256M")

import forebay_ctypes as forebay  # noqa: E402  (the variables above must be set first)
from common import STATS_HEADS, must, stats_row, table  # noqa: E402

MIB = 1 << 20
DEVICE = 0
lib = forebay.lib


class Torch:
    """Calls the hooks as torch.cuda.CUDAPluggableAllocator does: with the stream."""

    def __init__(self, stream):
        self.stream, self.sizes = stream, {}

    def empty(self, size: int) -> int:
        address = lib.forebay_torch_malloc(size, DEVICE, self.stream)
        self.sizes[address] = size
        return address

    def free(self, address: int) -> None:
        lib.forebay_torch_free(address, self.sizes.pop(address), DEVICE, self.stream)


class Cupy:
    """Calls the hooks as cupy.cuda.memory.CFunctionAllocator does: without a stream, which the library asks for."""

    def __init__(self, stream):
        # The object must outlive its registration, or the library would call freed memory.
        self.getter = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)(lambda device: stream.value)
        lib.forebay_cupy_set_stream_getter(ctypes.cast(self.getter, ctypes.c_void_p))

    def empty(self, size: int) -> int:
        return lib.forebay_cupy_malloc(None, size, DEVICE)

    def free(self, address: int) -> None:
        lib.forebay_cupy_free(None, address, DEVICE)

    def close(self) -> None:
        lib.forebay_cupy_set_stream_getter(None)


def new_stream(pool) -> ctypes.c_void_p:
    stream = ctypes.c_void_p()
    lib.forebay_stream_create(pool, DEVICE, ctypes.byref(stream))
    return stream


def main() -> None:
    pool = forebay.shared()
    print(f"forebay {lib.forebay_version().decode()}, driver {lib.forebay_pool_driver_name(pool).decode()}")
    torch_stream, cupy_stream = new_stream(pool), new_stream(pool)
    torch, cupy = Torch(torch_stream), Cupy(cupy_stream)
    rows = []

    def note(what: str) -> None:
        rows.append(stats_row(what, forebay.stats(DEVICE)))

    note("start")
    tensors = [torch.empty(size * MIB) for size in (96, 48, 16)]
    must(all(tensors), "torch got 160 MiB")
    note("torch has 160 MiB")

    # The host driver's memory is RAM: this process can write through the pointer, as a kernel would.
    ctypes.memset(tensors[0], 0x11, 96 * MIB)
    must(ctypes.string_at(tensors[0] + 95 * MIB, 4) == b"\x11" * 4, "torch wrote its memory and reads it back")

    for tensor in tensors:
        torch.free(tensor)
    note("torch freed all")

    arrays = [cupy.empty(size * MIB) for size in (64, 64, 32)]
    must(all(arrays), "cupy got 160 MiB of what torch gave back")
    note("cupy has 160 MiB")

    for number, array in enumerate(arrays):
        lib.forebay_pool_fill(pool, DEVICE, array, number + 1, 32 * MIB, cupy_stream)
    # Both ways at once: the blocks stay where they are, so torch can read what cupy wrote, by address.
    mixed = torch.empty(32 * MIB)
    lib.forebay_stream_synchronize(pool, DEVICE, cupy_stream)
    lib.forebay_pool_copy(pool, DEVICE, mixed, arrays[1], 32 * MIB, torch_stream)
    lib.forebay_stream_synchronize(pool, DEVICE, torch_stream)
    must(ctypes.string_at(mixed, 64) == b"\x02" * 64, "torch copied what cupy wrote, on its own stream")
    note("both have memory")

    # Asking for more than there is is an error with the reasons in it, and changes nothing.
    before = forebay.stats(DEVICE)["live"]
    try:
        too_much = ctypes.c_void_p()
        lib.forebay_pool_malloc(pool, 4096 * MIB, DEVICE, torch_stream, ctypes.byref(too_much))
        must(False, "4 GiB is refused")
    except forebay.ForebayError as error:
        must(error.status == forebay.OUT_OF_MEMORY, "4 GiB is refused: " + str(error).splitlines()[0])
    must(forebay.stats(DEVICE)["live"] == before, "and nothing changed")

    torch.free(mixed)
    for array in arrays:
        cupy.free(array)
    note("all freed")
    forebay.trim(DEVICE)
    note("trimmed")
    end = forebay.stats(DEVICE)
    must(end["live"] == 0 and end["physical"] == 0, "everything was given back")
    slack = end["physical_peak"] - end["live_peak"]
    must(slack <= 4 * MIB, f"the device never held more than was in use, and {slack >> 20} MiB")
    lib.forebay_pool_check(pool, DEVICE)

    print("\nMiB by framework, live and physical, and what the pool did:")
    table(STATS_HEADS, rows)
    cupy.close()
    for stream in (torch_stream, cupy_stream):
        lib.forebay_stream_destroy(pool, DEVICE, stream)


if __name__ == "__main__":
    main()
