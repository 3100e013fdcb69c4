"""A program that a user of the package may write, for the type checkers of `make lint`. It is not run.

Each line with ``EXPECTED`` is a mistake, which both checkers must find: unneeded ignores are errors.
"""

from __future__ import annotations

from typing import Optional

import forebay
from forebay.typing import DeviceLike, SizeLike, StreamLike


class Arena(forebay.MemoryResource):
    """A resource that is written in Python."""

    def __init__(self, below: forebay.PoolMemoryResource) -> None:
        self._below = below

    def allocate(self, size: SizeLike, stream: StreamLike = None) -> forebay.Buffer:
        return self._below.allocate(size, stream=stream)

    def deallocate(self, ptr: forebay.typing.DevicePointerType, size: SizeLike, stream: StreamLike = None) -> None:
        self._below.deallocate(ptr, size, stream=stream)


def use(device: DeviceLike) -> tuple[int, bytes, Optional[str]]:
    """Buffers, figures and sharing."""
    pool = forebay.Pool(limit="8G")
    with forebay.Stream(device) as stream, Arena(forebay.PoolMemoryResource("cuda:0", pool)).allocate("64M") as buffer:
        buffer.fill(7, stream=stream)
        name = bytes(buffer.get_ipc_descriptor())
        copy: forebay.Buffer = buffer.copy_to(stream=stream)
        copy.close(stream)
    cache = forebay.VirtualMemoryResource(0, forebay.VirtualMemoryResourceOptions(peer_access="r", addr_align="2M"))
    grown = cache.modify_allocation(cache.allocate(1 << 20), "1G")
    try:
        live: int = pool.stats(device).live
    except forebay.OutOfMemoryError as error:
        status: int = error.status
        live = status
    return live, name, grown.ipc_path


def plug_ins() -> None:
    """The parts that are imported when they are first named."""
    forebay.torch.install("auto")
    forebay.cupy.install()
    forebay.numba.install()
    forebay.cuda_core.install("cuda:0")
    forebay.rmm.install()
    forebay.pressure.start()


def mistakes() -> None:
    forebay.Bufer()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # EXPECTED
    forebay.Pool(limt="8G")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # EXPECTED
    forebay.PoolMemoryResource().allocate(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # EXPECTED
