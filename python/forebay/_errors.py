"""The exceptions of this package, and which status becomes which.

The text is always the library's own: what was asked, what is allowed, and what to do.
"""

from __future__ import annotations

from enum import IntEnum

from . import _core


class Status(IntEnum):
    """``forebay_status`` of ``forebay.h``: what a call of the library answered."""

    OK = _core.STATUS_OK
    NULL_POINTER = _core.STATUS_NULL_POINTER
    INVALID_ARGUMENT = _core.STATUS_INVALID_ARGUMENT
    OUT_OF_MEMORY = _core.STATUS_OUT_OF_MEMORY
    BAD_FREE = _core.STATUS_BAD_FREE
    UNSUPPORTED = _core.STATUS_UNSUPPORTED
    NO_DRIVER = _core.STATUS_NO_DRIVER
    BAD_DEVICE = _core.STATUS_BAD_DEVICE
    DRIVER = _core.STATUS_DRIVER
    CAPTURING = _core.STATUS_CAPTURING
    FORKED = _core.STATUS_FORKED
    NOT_FOUND = _core.STATUS_NOT_FOUND
    BUSY = _core.STATUS_BUSY
    PANIC = _core.STATUS_PANIC
    CLOSED = _core.STATUS_CLOSED
    NOT_PERMITTED = _core.STATUS_NOT_PERMITTED
    PEER = _core.STATUS_PEER


class ForebayError(Exception):
    """A call of the library failed, and changed nothing. ``status`` says what kind of failure it was."""

    def __init__(self, message: str, status: int = Status.DRIVER) -> None:
        super().__init__(message)
        #: The status, a :class:`Status` where this package knows the number.
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.status)


class OutOfMemoryError(ForebayError, MemoryError):
    """No memory, after everything that could be given back was. The text has the pool's report."""


class InvalidArgumentError(ForebayError, ValueError):
    """A size, number, option or pointer that the library does not take."""


class UnsupportedError(ForebayError, NotImplementedError):
    """The driver, the device or this platform lacks what was asked for."""


class NoDriverError(ForebayError, RuntimeError):
    """There is no usable driver or device."""


class ClosedError(ForebayError, RuntimeError):
    """The resource or buffer is closed."""


class NotPermittedError(ForebayError, RuntimeError):
    """The resource does not do this: it is mapped from another process, or not made for sharing."""


class NotFoundError(ForebayError, RuntimeError):
    """Nothing is known under that key."""


class PeerError(ForebayError, RuntimeError):
    """The other process is gone, or does not answer as it should."""


class CallError(ForebayError, RuntimeError):
    """Any other failure; ``status`` tells them apart: the driver, a capture, a forked child, a bug of the library."""


_CLASSES: dict[int, type[ForebayError]] = {
    Status.NULL_POINTER: InvalidArgumentError,
    Status.INVALID_ARGUMENT: InvalidArgumentError,
    Status.OUT_OF_MEMORY: OutOfMemoryError,
    Status.BAD_FREE: InvalidArgumentError,
    Status.UNSUPPORTED: UnsupportedError,
    Status.NO_DRIVER: NoDriverError,
    Status.BAD_DEVICE: InvalidArgumentError,
    Status.NOT_FOUND: NotFoundError,
    Status.CLOSED: ClosedError,
    Status.NOT_PERMITTED: NotPermittedError,
    Status.PEER: PeerError,
}


def failure(status: int) -> ForebayError:
    """The exception for this thread's last failing call, to be raised by the caller."""
    message = _core.last_error_message()
    try:
        known = Status(status)
    except ValueError:  # a newer library's
        return CallError(message, status)
    return _CLASSES.get(known, CallError)(message, known)
