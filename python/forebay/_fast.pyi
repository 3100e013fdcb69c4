# The extension module: python/fast. The classes are typed where they are written in Python, in _plain.py.

from collections.abc import Sequence
from typing import Any, Callable

from ._buffer import Buffer
from ._plain import BufferBase as BufferBase
from ._plain import ResourceBase as ResourceBase
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
    failure: Callable[[int], Exception],
) -> None: ...
