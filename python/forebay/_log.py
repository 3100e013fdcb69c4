"""The library's log in Python's `logging`: the logger ``forebay``.

The library is told the level at which the logger listens, so that nothing below it costs anything. It tells an event at the end
of a call, on the thread that made it, when it holds no lock of its own: taking the interpreter's lock there waits for nobody
who waits for the library.
"""

from __future__ import annotations

import atexit
import logging
from ctypes import CFUNCTYPE, c_char_p, c_uint32, c_void_p, cast
from typing import Any, Optional

from . import _library

_logger = logging.getLogger(__package__)

#: ``FOREBAY_LOG_LEVEL_*``, by their numbers: nothing, and from errors to everything.
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

_set_level = _logger.setLevel


def follow() -> None:
    """Tells the library the level of the logger as it is now."""
    wanted = sum(_logger.isEnabledFor(level) for level in _LEVELS[1:])
    _told(_ADDRESS, wanted)


def _told(callback: Optional[int], level: int) -> None:
    try:
        # What it answers is no matter: in a forked child there is nothing to hear.
        _library.forebay_log_set_callback(callback, None, level)
    except _library.LibraryError:
        pass  # an older library, which keeps its log to itself


def _set_level_and_follow(level: Any) -> None:
    _set_level(level)
    follow()


def _called(_: Any, level: int, message: bytes) -> None:
    _logger.log(_LEVELS[min(level, len(_LEVELS) - 1)], "%s", message.decode(errors="replace"))


# Both names stay: the library may be on its way to the function until it is told to forget it.
_FUNCTION = CFUNCTYPE(None, c_void_p, c_uint32, c_char_p)(_called)
_ADDRESS: int = cast(_FUNCTION, c_void_p).value or 0

# `logging` tells nobody of a new level. One that is set on this logger is followed; one that it has from above is, as it was
# when a pool was made.
_logger.setLevel = _set_level_and_follow  # type: ignore[method-assign]
follow()
# After that no Python may be called any more.
atexit.register(_told, None, 0)
