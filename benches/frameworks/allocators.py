"""PyTorch on each of the allocators that are compared. PyTorch chooses once, so each needs a process of its own.

`environment(name)` is what the process must be started with, `torch_on(name)` what it calls first. RMM is no part of this
project: carry its wheels and name their folder in PYTHONPATH.
"""

import atexit
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30

#: What PyTorch reads of its own allocators when it is imported.
SETTINGS = {
    "native": "backend:native",
    "expandable": "backend:native,expandable_segments:True",
    "async": "backend:cudaMallocAsync",
}
NAMES = (*SETTINGS, "rmm-pool", "rmm-async", "bare", "noop", "forebay", "forebay-base")

#: The allocator of PyTorch's manual, and one that does nothing: it answers one address, or for PyTorch,
#: which ends the process when an address is live twice, 64 in turn.
BARE = """
#include <sys/types.h>
int cudaMalloc(void **out, size_t size);
int cudaFree(void *memory);
void *bare_malloc(ssize_t size, int device, void *stream) {
  void *memory = 0;
  return cudaMalloc(&memory, (size_t)size) == 0 ? memory : 0;
}
void bare_free(void *memory, ssize_t size, int device, void *stream) { cudaFree(memory); }
"""
NOOP = """
#include <sys/types.h>
static char *block;
static unsigned turn;
void noop_set(void *memory) { block = memory; }
void *noop_malloc(ssize_t size, int device, void *stream) { return block + (size_t)(turn++ % 64 << 20); }
void noop_free(void *memory, ssize_t size, int device, void *stream) {}
void *noop_cupy_malloc(void *param, size_t size, int device) { return block; }
void noop_cupy_free(void *param, void *memory, int device) {}
"""


def environment(name):
    """The environment of this process, with the settings for a child that calls `torch_on(name)`."""
    found = {key: value for key, value in os.environ.items() if "ALLOC_CONF" not in key and key != "FOREBAY_TORCH_MODE"}
    path = [str(ROOT / "python"), *filter(None, [found.get("PYTHONPATH")])]
    found["PYTHONPATH"] = os.pathsep.join(path)
    built = ROOT / "target" / "gpu" / "libforebay.so"
    if built.exists():
        found.setdefault("FOREBAY_LIBRARY", str(built))
    if name in SETTINGS:
        found["PYTORCH_ALLOC_CONF"] = SETTINGS[name]
    return found


def runtime():
    """The path of CUDA's runtime, as this process has it loaded."""
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if "libcudart.so" in line)


def compiled(source, *libraries):
    """The path of a shared object made of C; it goes with the process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "allocator.so")
    command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-x", "none", *libraries]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def noop(memory):
    """The allocator that does nothing, as a ctypes library that answers this address; PyTorch's hook takes 64 MiB from it."""
    library = ctypes.CDLL(compiled(NOOP))
    library.noop_set.argtypes = [ctypes.c_void_p]
    library.noop_set(memory)
    return library


def rmm_resource(name):
    """Makes RMM's pool, of 1 GiB at first, or the driver's through RMM the current one."""
    import rmm

    if name == "rmm-pool":
        rmm.reinitialize(pool_allocator=True, initial_pool_size=GIB)
    else:
        rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    return rmm


def _pluggable(torch, path, malloc, free):
    torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(path, malloc, free))


def torch_on(name):
    """Imports PyTorch, and makes it allocate from what `name` says."""
    import torch

    if name in SETTINGS:
        expected = "cudaMallocAsync" if name == "async" else "native"
        assert torch.cuda.get_allocator_backend() == expected, "PYTORCH_ALLOC_CONF was not obeyed"
    elif name.startswith("forebay"):
        import forebay

        forebay.torch.install("base" if name == "forebay-base" else "adapter")
    elif name.startswith("rmm"):
        rmm_resource(name)
        from rmm.allocators.torch import rmm_torch_allocator

        torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    elif name == "bare":
        _pluggable(torch, compiled(BARE, runtime()), "bare_malloc", "bare_free")
    elif name == "noop":
        memory = ctypes.c_void_p()
        if ctypes.CDLL(runtime()).cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(GIB // 16)):
            sys.exit("cudaMalloc of 64 MiB failed")
        _pluggable(torch, noop(memory)._name, "noop_malloc", "noop_free")
    else:
        raise ValueError(f"no allocator {name!r}; there are {', '.join(NAMES)}")
    return torch
