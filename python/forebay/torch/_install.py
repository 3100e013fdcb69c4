"""Making PyTorch allocate from Forebay: what must hold before, and which of the two ways is taken."""

from __future__ import annotations

import ctypes
import logging
import os
import warnings
from dataclasses import dataclass
from typing import Any, Optional

from .. import _core
from .._errors import ForebayError, Status
from .._frameworks import keep_nccl_from_graphs
from .._pool import shared_pool_if_made
from . import _base, _build
from ._compiler import KNOWN

_log = logging.getLogger(__name__)

MODES = ("auto", "adapter", "base")


class InstallError(RuntimeError):
    """PyTorch cannot be made to allocate from Forebay now; it is as it was."""


@dataclass(frozen=True)
class Installation:
    """How PyTorch allocates from Forebay."""

    #: ``"adapter"`` or ``"base"``.
    mode: str
    #: Why base mode was taken although the adapter was asked for first; "" otherwise.
    reason: str
    #: The shared object of the adapter; "" in base mode.
    adapter: str
    #: The process that it was done in.
    process: int


_installation: Optional[Installation] = None


def installation() -> Optional[Installation]:
    """What :func:`install` did in this process, or None."""
    return _installation


def install(mode: str = "auto") -> Installation:
    """Makes PyTorch allocate device memory from Forebay's shared pool, until the process ends.

    Call it before the first use of CUDA through PyTorch, once in each process; children that are spawned call it for
    themselves. Other frameworks' installs may come before or after it. Sets ``NCCL_GRAPH_REGISTER=0`` in the environment, if
    that is unset: collectives inside of CUDA graphs can hang otherwise.

    Parameters
    ----------
    mode : str
        ``"adapter"``: a C++ class for PyTorch's minor version that implements its whole allocator interface: prebuilt,
        or compiled once where the package has none for this PyTorch. ``"base"``: PyTorch's stock class for allocators
        from outside, with every hook set, and Python's statistics answered from Forebay; it needs no compiler, and has
        no memory history, no ``cudnn.benchmark``, no ``torch.cuda.MemPool``, no CUDA-graph trees and no tensors shared
        between processes. ``"auto"``: what the variable ``FOREBAY_TORCH_MODE`` says, else the adapter where there is
        one, else base.

    Returns
    -------
    Installation
        Its ``mode`` says which it is, and ``reason`` why it is not the adapter.

    Raises
    ------
    InstallError
        If PyTorch has used CUDA, is older than 2.9 or without CUDA, allocates from somewhere else already, or if this
        process is a child of ``fork``; for a second call; and in mode ``"adapter"`` if there is none.
    ValueError
        For an unknown mode.

    Warns
    -----
    RuntimeWarning
        If PyTorch is newer than this version of Forebay knows: the adapter is compiled, which checks the interface, or
        base mode taken.
    """
    global _installation
    mode = _wanted(mode)
    torch = _torch()
    _refuse_fork(torch)
    if _installation is not None:
        raise InstallError(
            f"forebay.torch.install() was called before, and PyTorch allocates from Forebay in mode {_installation.mode!r}: "
            "call it once; forebay.torch.installation() tells"
        )
    _refuse_used(torch)
    adapter, reason = "", ""
    if mode != "base":
        try:
            adapter, entry = _load_adapter(torch.__version__)
        except _build.BuildError as error:
            if mode == "adapter":
                raise InstallError(f"there is no adapter for PyTorch {torch.__version__}: {error}") from error
            reason = str(error)
    if adapter:
        _call(entry, torch.__version__)
    else:
        _base.install(torch)
    _installation = Installation("adapter" if adapter else "base", reason, adapter, os.getpid())
    # Last: where warnings are errors, these raise.
    _warn_unknown(torch.__version__, _installation)
    keep_nccl_from_graphs()
    return _installation


def _wanted(mode: str) -> str:
    source = "mode"
    if mode == "auto" and (named := os.environ.get("FOREBAY_TORCH_MODE")):
        mode, source = named, "FOREBAY_TORCH_MODE"
    if mode not in MODES:
        raise ValueError(f"{source} is {mode!r}; it takes {', '.join(map(repr, MODES))}")
    return mode


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise InstallError(f"PyTorch cannot be imported: {error}") from error
    minor = _build.minor_version(torch.__version__)
    if minor is None or minor < min(KNOWN):
        raise InstallError(
            f"PyTorch is {torch.__version__}, and this version of Forebay supports {_known()} and tries newer ones: install "
            "one of those"
        )
    if torch.version.cuda is None:
        raise InstallError(f"PyTorch {torch.__version__} is built without CUDA: install a build that has it")
    return torch


def _refuse_fork(torch: Any) -> None:
    forked = bool(torch.cuda._is_in_bad_fork())
    forked = forked or (_installation is not None and _installation.process != os.getpid())
    pool = shared_pool_if_made()
    if pool is not None:
        try:
            _core.pool_device_count(pool)
        except ForebayError as error:
            forked = forked or error.status == Status.FORKED
    if forked:
        raise InstallError(
            "this process is a child of fork(), whose parent has used CUDA or installed Forebay: use the start method 'spawn' "
            "or 'forkserver', and install in the child"
        )


def _refuse_used(torch: Any) -> None:
    if torch.cuda.is_initialized():
        raise InstallError(
            "PyTorch has used CUDA already, and its allocator cannot be changed any more: call forebay.torch.install() first, "
            "right after the imports"
        )
    backend = torch._C._cuda_getAllocatorBackend()
    if backend not in ("native", "cudaMallocAsync"):
        raise InstallError(
            f"PyTorch's allocator was changed to {backend!r} before: remove the call of change_current_allocator that did it"
        )


def _known() -> str:
    return "{}.{} to {}.{}".format(*min(KNOWN), *max(KNOWN))


def _warn_unknown(version: str, done: Installation) -> None:
    minor = _build.minor_version(version)
    if minor is not None and minor > max(KNOWN):
        taken = "the adapter was compiled against its headers" if done.adapter else "base mode was taken"
        warnings.warn(
            f"PyTorch {version} is newer than this version of Forebay knows ({_known()}): {taken}, but was not tested with it",
            RuntimeWarning,
            stacklevel=3,
        )


def _load_adapter(version: str) -> tuple[str, Any]:
    """The path of the adapter and its entry point: prebuilt, or compiled here."""
    if path := _build.prebuilt(version):
        try:
            return path, _entry(path)
        except OSError as error:
            # Say, a libc or libstdc++ older than the one it was linked with.
            _log.warning("the prebuilt adapter at %s cannot be loaded: %s", path, error)
    path = _build.compiled()
    try:
        return path, _entry(path)
    except OSError as error:
        raise _build.BuildError(f"the adapter at {path} cannot be loaded: {error}; delete it, and it is built again") from error


def _entry(path: str) -> Any:
    entry = ctypes.CDLL(path).forebay_torch_adapter_install
    entry.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    entry.restype = ctypes.c_int
    return entry


def _call(entry: Any, version: str) -> None:
    text = ctypes.create_string_buffer(4096)
    if entry(os.fsencode(_core.library_path()), version.encode(), text, len(text)):
        raise InstallError(text.value.decode(errors="replace"))
