"""Which of two implementations makes the hot calls: the extension module ``_fast``, or ``_plain`` through ctypes.

Both have one behaviour; the extension costs less. It is looked for inside the package and beside the library in use. Where
it is absent nothing is said; where it is there and of no use, a warning is given. The variable ``FOREBAY_PYTHON_FAST`` forbids
it with 0 and demands it with 1.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import warnings
from typing import TYPE_CHECKING, Any, Optional

from . import _library
from ._arguments import as_pointer, as_size
from ._errors import failure
from ._stream import Stream, resolve

if TYPE_CHECKING:
    from ._buffer import Buffer
    from ._plain import BufferBase, ResourceBase
    from ._plain_blocks import CoreBase, free, free_after_all, malloc, malloc_ready
    from ._plain_pinned import PinnedBase, PinnedBlock

#: What this package expects of the extension.
ABI = 4
_NAME = f"{__package__}._fast"


def _find() -> Optional[str]:
    # It is built for the stable ABI of interpreters with a lock, as that is since 3.10.
    if sys.version_info < (3, 10) or sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_fast.abi3.so")
    beside = os.path.join(os.path.dirname(_library.path), "libforebay_fast.so")
    return next(filter(os.path.exists, (inside, beside)), None)


def _load(file: str) -> Any:
    """The extension, ready to be connected.

    Raises
    ------
    ImportError
        If it cannot be used with this package and its library.
    """
    loader = importlib.machinery.ExtensionFileLoader(_NAME, file)
    spec = importlib.util.spec_from_file_location(_NAME, file, loader=loader)
    assert spec is not None  # it is None for no loader only
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    if module.ABI != ABI:
        raise ImportError(f"its interface is number {module.ABI}, and this package's number {ABI}")
    if module.is_connected():
        raise ImportError("another copy of the package is using it")
    try:
        _addresses(module)
    except _library.LibraryError as error:
        raise ImportError(str(error)) from error
    return module


def _addresses(module: Any) -> list[int]:
    return [_library.address_of(name) for name in module.FUNCTIONS]


def _choose() -> tuple[Any, Optional[str]]:
    wish = os.environ.get("FOREBAY_PYTHON_FAST", "")
    if wish not in ("", "0", "1"):
        raise ImportError(f"FOREBAY_PYTHON_FAST is {wish!r}: it must be 0, 1 or unset")
    file = None if wish == "0" else _find()
    if file is None:
        if wish == "1":
            raise ImportError("FOREBAY_PYTHON_FAST is 1, and there is no extension: `cargo build --release -p forebay-python`")
        return None, None
    try:
        return _load(file), file
    except ImportError as error:
        if wish == "1":
            raise
        warnings.warn(
            f"{file} cannot be used: {error}. Forebay's calls go through ctypes, which is slower. "
            "`cargo build --release -p forebay-python` rebuilds it; FOREBAY_PYTHON_FAST=0 does without it",
            RuntimeWarning,
            stacklevel=2,
        )
        return None, None


#: The extension, and its file; None where ctypes is used.
_fast, path = _choose()

if not TYPE_CHECKING:
    if _fast is not None:
        BufferBase, ResourceBase = _fast.BufferBase, _fast.ResourceBase
        CoreBase, PinnedBase, PinnedBlock = _fast.CoreBase, _fast.PinnedBase, _fast.PinnedBlock
        malloc, malloc_ready = _fast.malloc, _fast.malloc_ready
        free, free_after_all = _fast.free, _fast.free_after_all
    else:
        from ._plain import BufferBase, ResourceBase
        from ._plain_blocks import CoreBase, free, free_after_all, malloc, malloc_ready
        from ._plain_pinned import PinnedBase, PinnedBlock


def _vectorcall() -> list[int]:
    """Addresses of two C functions of the interpreter's that its stable ABI has from 3.12 on only; 0 where there is none."""
    names = "PyObject_Vectorcall", "PyObject_VectorcallMethod"
    functions = [getattr(ctypes.pythonapi, name, None) for name in names]
    return [0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]


def connect(buffer: type[Buffer]) -> None:
    """Names the class of the buffers that resources give. Once, before the first of them."""
    if _fast is not None:
        _fast.connect(_addresses(_fast), buffer, Stream, resolve, as_size, as_pointer, failure, _vectorcall())
    else:
        from . import _plain

        _plain.connect(buffer)


__all__ = [
    "ABI",
    "BufferBase",
    "CoreBase",
    "PinnedBase",
    "PinnedBlock",
    "ResourceBase",
    "connect",
    "free",
    "free_after_all",
    "malloc",
    "malloc_ready",
    "path",
]
