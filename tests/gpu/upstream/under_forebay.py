"""A plug-in of pytest, loaded before the tests: puts the framework of $UPSTREAM_FRAMEWORK where $UPSTREAM_SIDE says.

``own``: nothing. ``forebay``: the framework allocates from Forebay. ``classes``: besides, CuPy's pool classes are Forebay's.
"""

import contextlib
import os

SIDE = os.environ["UPSTREAM_SIDE"]


def torch():
    import torch
    from torch.testing._internal import common_cuda

    @contextlib.contextmanager
    def blas_library_context(backend):
        before = torch.backends.cuda.preferred_blas_library(backend)
        try:
            yield
        finally:
            torch.backends.cuda.preferred_blas_library(before)

    # Names that the file of tests takes from helpers of a somewhat later PyTorch.
    for name, value in {"blas_library_context": blas_library_context, "PLATFORM_SUPPORTS_WORKQUEUE_CONFIG": False}.items():
        if not hasattr(common_cuda, name):
            setattr(common_cuda, name, value)
    if SIDE != "own":
        import forebay

        forebay.torch.install("adapter")


def cupy():
    if SIDE == "own":
        return
    import cupy
    import forebay

    malloc = forebay.cupy.install().malloc
    pinned = forebay.cupy.PinnedMemoryPool()
    install = lambda: (cupy.cuda.set_allocator(malloc), cupy.cuda.set_pinned_memory_allocator(pinned.malloc))  # noqa: E731
    # Tests leave CuPy with CuPy's own pool when they end.
    globals()["pytest_runtest_setup"] = lambda item: install()
    if SIDE == "classes":
        # Of its own memory in each test, as a new pool of CuPy's is.
        cupy.cuda.memory.MemoryPool = cupy.cuda.MemoryPool = lambda allocator=None: forebay.cupy.MemoryPool(forebay.Pool())
        cupy.cuda.memory.MemoryAsyncPool = cupy.cuda.MemoryAsyncPool = forebay.cupy.MemoryAsyncPool


{"torch": torch, "cupy": cupy}[os.environ["UPSTREAM_FRAMEWORK"]]()
