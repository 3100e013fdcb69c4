"""forebay.numba.ForebayMemoryManager: document 002 whole, under Numba's own arrays and kernels."""

import contextlib
import gc
import os
import subprocess
import sys

from common import GIB, MIB, forebay, latency, must, nanoseconds, numpy, ok, print_latencies, refused, stats, verify

from numba import cuda

if "own" in sys.argv:
    print(nanoseconds(lambda: cuda.device_array(512, numpy.uint8), 2000))
    sys.exit()

forebay.numba.install()
latency(2000, forebay=(int, lambda: cuda.device_array(512, numpy.uint8)))
forebay.numba.install()
context = cuda.current_context()
manager = context.memory_manager
must(type(manager) is forebay.numba.ForebayMemoryManager and manager.interface_version == 1, "Numba uses it")


@cuda.jit
def add(array, value):
    at = cuda.grid(1)
    if at < array.size:
        array[at] += value


host = numpy.arange(1 << 20, dtype=numpy.int32)
device = cuda.to_device(host)
must(stats().live_by_framework["numba"] == 4 * MIB, "an array is memory of the shared pool")
add[1024, 1024](device, 5)
must(bool((device.copy_to_host() == host + 5).all()), "kernels use it")
view = device[1000:2000]
del device
must(bool((view.copy_to_host() == host[1000:2000] + 5).all()), "a view keeps it")
del view
gc.collect()
must(stats().live_by_framework["numba"] == 0, "and then it is free")

streams, wrong = [cuda.stream() for _ in range(4)], 0
for number in range(100):  # freed under pending work of one stream, wanted by another
    first, second = streams[number % 4], streams[(number + 1) % 4]
    source = cuda.device_array(1 << 20, numpy.int32, stream=first)
    source[:] = number
    target = cuda.device_array(1 << 20, numpy.int32, stream=first)
    for _ in range(20):
        add[1024, 1024, first](source, 1)
    target.copy_to_device(source, stream=first)
    del source
    other = cuda.device_array(1 << 20, numpy.int32, stream=second)
    other.copy_to_device(host, stream=second)
    first.synchronize()
    second.synchronize()
    wrong += int((target.copy_to_host() != number + 20).sum()) + int((other.copy_to_host() != host).sum())
must(wrong == 0, "memory freed under pending work is not overwritten, whatever the stream")
del target, other

pinned = cuda.pinned_array(1000, numpy.int32)
pinned[:] = 3
must(bool((cuda.to_device(pinned).copy_to_host() == 3).all()), "pinned memory")
for words in ({}, {"portable": True}, {"wc": True}, {"portable": True, "wc": True}):
    mapped = cuda.mapped_array(1000, numpy.int32, **words)
    mapped[:] = 4
    add[1, 1024](mapped, 1)
    context.synchronize()
    must(bool((mapped == 5).all()), f"mapped memory {words}")
plain = numpy.zeros(100_000, numpy.int32)
for _ in range(2):
    with cuda.pinned(plain):
        stream = cuda.stream()
        copy = cuda.to_device(plain, stream=stream)
        stream.synchronize()
    with cuda.mapped(plain) as seen:
        add[128, 1024](seen, 1)
        context.synchronize()
must(int(plain.min()) == int(plain.max()) == 2, "memory of the program, pinned and mapped")
with cuda.pinned(plain), contextlib.suppress(forebay.ForebayError):
    manager.mempin(plain, plain.ctypes.data, plain.nbytes, False)
    must(False, "memory that is pinned is not pinned again")

free, total = context.get_memory_info()
must(0 < free <= total == forebay.Pool.shared().memory_info()[1], "get_memory_info")
pool = forebay.Pool.shared()
pool.set_limit(GIB)
must(context.get_memory_info().free <= GIB, "the limit counts")
error = refused(MemoryError, lambda: cuda.device_array(2 * GIB, numpy.uint8), "limit", "asked for")
must(isinstance(error, forebay.OutOfMemoryError), "what fails is Forebay's OutOfMemoryError")
pool.set_limit(0)

live = stats().live_by_framework["numba"]
with cuda.defer_cleanup():
    array = cuda.device_array(MIB, numpy.uint8)
    del array
    must(stats().live_by_framework["numba"] == live + MIB, "defer_cleanup puts off")
must(stats().live_by_framework["numba"] == live, "and catches up")
managed = cuda.managed_array(1000, numpy.int32)
managed[:] = 1
add[1, 1024](managed, 1)
context.synchronize()
must(int(managed.sum()) == 2000, "managed memory is Numba's own")

kept = cuda.device_array(MIB, numpy.uint8)
manager.reset()
must(stats().live_by_framework["numba"] == 0, "reset gives everything back")
other = cuda.to_device(host)
del kept
must(bool((other.copy_to_host() == host).all()), "a late finalizer touches nothing new")
verify()

own = subprocess.run([sys.executable, __file__, "own"], stdout=subprocess.PIPE, text=True, check=True).stdout
print(f'{{"bench": "numba device_array(512) and its free", "own_ns": {float(own):.0f}}}')
print_latencies("numba device_array(512) and its free")

probe = (
    "import numpy; numpy.row_stack = numpy.vstack\n"
    "from numba import cuda\n"
    "a = cuda.to_device(numpy.arange(10)); b = cuda.pinned_array(10); c = cuda.mapped_array(10)\n"
    "print(type(cuda.current_context().memory_manager).__name__)\n"
    "import sys\n"
    "if 'close' in sys.argv: cuda.close()\n"
)
package = os.path.dirname(os.path.dirname(forebay.__file__))
paths = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
for words in ([], ["close"]):  # with finalizers at the end, also after the contexts were reset
    done = subprocess.run(
        [sys.executable, "-c", probe, *words],
        env={**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": "forebay.numba", "PYTHONPATH": paths},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    must(done.returncode == 0 and done.stdout == "ForebayMemoryManager\n", f"NUMBA_CUDA_MEMORY_MANAGER {words} {done.stderr}")
    must(done.stderr == "", f"nothing is said at the end: {done.stderr}")

probe = "import sys; sys.path.insert(0, sys.argv[1])\nimport numpy; numpy.row_stack = numpy.vstack\n" + (
    "from numba import cuda; cuda.current_context(); import forebay\n"
    "try: forebay.numba.install()\n"
    "except RuntimeError as error: print(error)\n"
)
done = subprocess.run([sys.executable, "-c", probe, package], stdout=subprocess.PIPE, text=True, check=True)
must("before Numba uses CUDA" in done.stdout, "too late is said")
ok()
