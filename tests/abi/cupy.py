# CuPy's hooks, called the way CuPy calls them: with the GIL held, and a Python exception expected on failure.
# argv: the shared library, and a folder where a package that looks like CuPy may be written.
import ctypes
import os
import sys

library, folder = sys.argv[1:3]
# PyDLL keeps the GIL during calls and raises what they leave pending.
forebay = ctypes.PyDLL(library)
forebay.forebay_cupy_malloc.restype = ctypes.c_void_p
forebay.forebay_cupy_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
forebay.forebay_cupy_free.restype = None
forebay.forebay_cupy_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
forebay.forebay_cupy_set_stream_getter.restype = None
forebay.forebay_pool_shared.argtypes = [ctypes.c_void_p]
forebay.forebay_stream_create.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
forebay.forebay_pool_set_limit.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64]
forebay.forebay_last_error_message.restype = ctypes.c_char_p
MIB = 1 << 20


class StreamStats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64) for name in ("live", "live_peak", "allocations", "frees", "hits")
    ] + [("reserved", ctypes.c_uint64 * 4)]


forebay.forebay_pool_get_stream_stats.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
pool = ctypes.c_void_p()
assert forebay.forebay_pool_shared(ctypes.byref(pool)) == 0, forebay.forebay_last_error_message()


def live(stream):
    stats = StreamStats(size=ctypes.sizeof(StreamStats), version=1)
    assert forebay.forebay_pool_get_stream_stats(pool, 0, stream, ctypes.byref(stats)) == 0
    return stats.live


def malloc(size, device=0):
    return forebay.forebay_cupy_malloc(None, size, device)


def raises(kind, words, *arguments):
    for _ in range(20):  # nothing is left pending for the next call
        try:
            malloc(*arguments)
        except Exception as error:
            assert type(error) is kind, (type(error), error)
            for word in words:
                assert word in str(error), (word, str(error))
        else:
            raise AssertionError(f"{arguments} raised nothing")
        assert sys.exc_info() == (None, None, None)
        assert malloc(0) is None


REPORT = ["Forebay: out of memory on device 0", "asked for", "live", "held", "limit"]

# Without CuPy it is Python's own error.
raises(MemoryError, REPORT, 1 << 50)
raises(MemoryError, ["asked for"], (1 << 63) - 1)
raises(RuntimeError, ["device 999"], 512, 999)
raises(RuntimeError, ["device -1"], 512, -1)

# With a package that has CuPy's class it is that.
os.makedirs(os.path.join(folder, "cupy", "cuda"))
for package in ("cupy", os.path.join("cupy", "cuda")):
    open(os.path.join(folder, package, "__init__.py"), "w").close()
with open(os.path.join(folder, "cupy", "cuda", "memory.py"), "w") as file:
    file.write(
        """
class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        self.given = (size, total, limit)
        super().__init__(f'Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).')
    def __reduce__(self):
        return (type(self), self.given)
"""
    )
sys.path.insert(0, folder)
import importlib

importlib.invalidate_caches()
from cupy.cuda.memory import OutOfMemoryError

kept = malloc(3 * MIB)
assert kept and kept % 512 == 0
raises(OutOfMemoryError, REPORT + ["live 3.00 MiB", "CuPy 3.00 MiB"], 1 << 50)
try:
    malloc(1 << 50)
except OutOfMemoryError as error:
    assert error.given == (1 << 50, 3 * MIB, 0), error.given
assert forebay.forebay_pool_set_limit(pool, 0, 4 * MIB) == 0
raises(OutOfMemoryError, ["the pool's limit", "8.00 MiB (8388608 bytes) asked for"], 8 * MIB)
assert forebay.forebay_pool_set_limit(pool, 0, 0) == 0
raises(RuntimeError, ["device 999"], 512, 999)

# A class that cannot be made is no reason to say nothing.
import cupy.cuda.memory as memory

whole, memory.OutOfMemoryError = memory.OutOfMemoryError, None
raises(MemoryError, REPORT, 1 << 50)
memory.OutOfMemoryError = whole
raises(OutOfMemoryError, REPORT, 1 << 50)

# Frees never raise.
forebay.forebay_cupy_free(None, kept + 512, 0)
forebay.forebay_cupy_free(None, 12345, 0)
forebay.forebay_cupy_free(None, None, 0)
assert live(None) == 3 * MIB
forebay.forebay_cupy_free(None, kept, 0)
forebay.forebay_cupy_free(None, kept, 0)
assert live(None) == 0

# The stream is the one that the getter gives: CuPy's is a C function that answers a Py_ssize_t.
stream = ctypes.c_void_p()
assert forebay.forebay_stream_create(pool, 0, ctypes.byref(stream)) == 0
asked = []


@ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)
def current_stream(device):
    asked.append(device)
    return stream.value


forebay.forebay_cupy_set_stream_getter(current_stream)
block = malloc(2 * MIB)
assert asked == [0] and live(stream) == 2 * MIB and live(None) == 0
forebay.forebay_cupy_free(None, block, 0)
assert asked == [0, 0] and live(stream) == 0
assert malloc(2 * MIB) == block, "freed and allocated in the order of that stream"
forebay.forebay_cupy_free(None, block, 0)
forebay.forebay_cupy_set_stream_getter(None)
block = malloc(2 * MIB)
assert live(None) == 2 * MIB
forebay.forebay_cupy_free(None, block, 0)
print("cupy hooks: right")
