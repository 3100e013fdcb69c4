# The extension module: python/fast. What it has is typed where it is written in Python, in _plain*.py.

from collections.abc import Sequence
from typing import Any, Callable

from ._buffer import Buffer
from ._plain import BufferBase as BufferBase
from ._plain import ResourceBase as ResourceBase
from ._plain_blocks import CoreBase as CoreBase
from ._plain_blocks import free as free
from ._plain_blocks import free_after_all as free_after_all
from ._plain_blocks import malloc as malloc
from ._plain_blocks import malloc_ready as malloc_ready
from ._plain_pinned import PinnedBase as PinnedBase
from ._plain_pinned import PinnedBlock as PinnedBlock
from ._stream import Stream

#: What the package must expect.
ABI: int
#: The library's functions whose addresses `connect` takes, in this order.
FUNCTIONS: list[str]

def is_connected() -> bool: ...
def connect(
    addresses: Sequence[int],
    buffer: type[Buffer],
    stream: type[Stream],
    resolve: Callable[[Any], tuple[int, object]],
    as_size: Callable[[Any], int],
    as_pointer: Callable[[Any], int],
    failure: Callable[[int], Exception],
    vectorcall: Sequence[int],
) -> None: ...
