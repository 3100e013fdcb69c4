"""Numba's arrays in another process, through Numba's own handles: with this manager there, and with Numba's."""

import os
import pickle
import subprocess
import sys

from common import forebay, must, numpy, ok, refused

from numba import cuda

if "other" in sys.argv:
    handle = pickle.load(sys.stdin.buffer)
    with handle as array:
        read = array.copy_to_host()
        array[:] = read * 2
        refused(ValueError, handle.open, "already opened")
    raw = pickle.load(sys.stdin.buffer)
    array = raw.open_array(cuda.current_context(), shape=raw.size // 8, dtype=numpy.dtype(numpy.int64))
    total = int(array.copy_to_host().sum())
    raw.close()
    staged = raw.open_staged(cuda.current_context())
    host = numpy.empty(raw.size // 8, numpy.int64)
    cuda.driver.device_to_host(host, staged, raw.size)
    raw.close()
    print(type(cuda.current_context().memory_manager).__name__, int(read.sum()), total, int(host.sum()))
    sys.exit()

forebay.numba.install()
package = os.path.dirname(os.path.dirname(forebay.__file__))
for manager, name in (("forebay.numba", "ForebayMemoryManager"), ("default", "NumbaCUDAMemoryManager")):
    for part in (slice(None), slice(3, None), slice(3, 8), slice(None, 8)):
        values = numpy.arange(1000, dtype=numpy.int64)
        whole = cuda.to_device(values)
        array = whole[part]
        handle, raw = array.get_ipc_handle(), cuda.current_context().get_ipc_handle(array.gpu_data)
        must(type(raw) is forebay.numba.ForebayIpcHandle, "the handle is Forebay's")
        again = pickle.loads(pickle.dumps(raw))
        must((again.base, again.size, again.handle.reserved) == (None, raw.size, raw.handle.reserved), "it is pickled")
        refused(ValueError, lambda raw=raw: raw.open(cuda.current_context()), "original process")
        done = subprocess.run(
            [sys.executable, __file__, "other"],
            input=pickle.dumps(handle) + pickle.dumps(raw),
            env={**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": manager, "PYTHONPATH": package},
            stdout=subprocess.PIPE,
        )
        total = int(values[part].sum())
        lines = done.stdout.decode().splitlines()
        must(done.returncode == 0 and lines[-1] == f"{name} {total} {2 * total} {2 * total}", f"{manager} {part}: {lines}")
        values[part] *= 2
        must(bool((whole.copy_to_host() == values).all()), "the other process wrote into it")
ok()
