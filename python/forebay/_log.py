"""The library's log in Python's `logging`: the logger ``forebay``.

The library is told the level at which the logger listens, so that nothing below it costs anything. It tells an event at
the end of a call, on the thread that made it, when it holds no lock of its own: taking the interpreter's lock there
waits for nobody who waits for the library.
"""

from __future__ import annotations

import atexit
import logging
from typing import Any

from . import _core

_logger = logging.getLogger(__package__)

#: By the numbers of ``FOREBAY_LOG_LEVEL_*``: nothing, and from errors to everything.
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

_set_level = _logger.setLevel


def follow() -> None:
    """Tells the library the level of the logger as it is now."""
    _core.log_set_callback(_called, sum(_logger.isEnabledFor(level) for level in _LEVELS[1:]))


def _set_level_and_follow(level: Any) -> None:
    _set_level(level)
    follow()


def _called(level: int, message: str) -> None:
    _logger.log(_LEVELS[min(level, len(_LEVELS) - 1)], "%s", message)


# `logging` tells nobody of a new level. One that is set on this logger is followed; one that it has from above is, as
# it was when a pool was made.
_logger.setLevel = _set_level_and_follow  # type: ignore[method-assign]
follow()
# After that no Python may be called any more.
atexit.register(_core.log_set_callback, None, 0)
