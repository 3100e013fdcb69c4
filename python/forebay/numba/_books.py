"""What a manager has given out, and how each piece goes back: once, whoever asks first."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Callable

#: A function and what to call it with. A tuple costs a third of a `functools.partial`, and every allocation makes one.
Due = tuple[Callable[..., None], tuple[Any, ...]]


class Piece:
    """A live piece of memory: giving it back is calling this, or losing it. The second time nothing happens.

    It stands where Numba's pointers have a `weakref.finalize`, of which they use `alive` and the call; that would take
    a third of the time of an allocation.
    """

    __slots__ = ("_at_once", "_books", "_number", "keeps")

    #: The object that stands for the piece, where Numba's own pointers refer to it weakly: kept until the piece goes
    #: back.
    keeps: object

    def __init__(self, books: Books, number: int, at_once: bool) -> None:
        self._books, self._number, self._at_once = books, number, at_once

    @property
    def alive(self) -> bool:
        """Whether it has not gone back."""
        return self._number in self._books.live

    def __call__(self) -> None:
        self.keeps = None
        books = self._books
        due = books.live.pop(self._number, None)
        if due is None:
            return
        if books.paused and not self._at_once:
            books.waiting.append(due)
        else:
            due[0](*due[1])

    __del__ = __call__


class Books:
    """The live memory of a manager. Pieces end late, after a reset and at the interpreter's end, and are then
    harmless."""

    def __init__(self) -> None:
        self.live: dict[int, Due] = {}
        self.waiting: list[Due] = []
        self.paused = 0
        self._numbers = itertools.count(1)
        # Every piece refers to the books, so that this does something at the interpreter's end only, while all still
        # works.
        weakref.finalize(self, _give_back_all, self.live, self.waiting)

    def __len__(self) -> int:
        return len(self.live)

    def add(self, give_back: Callable[..., None], *arguments: Any, at_once: bool = False) -> Piece:
        """Enters a piece that goes back with `give_back(*arguments)`. `at_once`: also while cleaning up is put off."""
        # A number and not the address: after a reset another piece may have that.
        number = next(self._numbers)
        self.live[number] = give_back, arguments
        return Piece(self, number, at_once)

    def reset(self) -> None:
        """Gives everything back."""
        _give_back_all(self.live, self.waiting)

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Nothing goes back inside; what was due does at the end of the outermost block."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1
            if self.paused == 0:
                _flush(self.waiting)


def _give_back_all(live: dict[int, Due], waiting: list[Due]) -> None:
    while live:
        _, (give_back, arguments) = live.popitem()
        give_back(*arguments)
    _flush(waiting)


def _flush(waiting: list[Due]) -> None:
    while waiting:
        give_back, arguments = waiting.pop()
        give_back(*arguments)
