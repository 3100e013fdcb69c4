"""What a manager has given out, and how each piece goes back: once, whoever asks first."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Callable

GiveBack = Callable[[], None]


class Books:
    """Finalizers of live memory. They run late, after a reset and at the interpreter's end, and are then harmless."""

    def __init__(self) -> None:
        self._live: dict[int, GiveBack] = {}
        self._kept: dict[int, object] = {}
        self._numbers = itertools.count(1)
        self._paused = 0
        self._waiting: list[GiveBack] = []

    def __len__(self) -> int:
        return len(self._live)

    def add(self, give_back: GiveBack, at_once: bool = False) -> tuple[int, Callable[[], None]]:
        """Enters a piece: its number, and the finalizer for it. `at_once`: also while cleaning up is put off."""
        # A number and not the address: after a reset another piece may have that.
        number = next(self._numbers)
        self._live[number] = give_back

        def finalize() -> None:
            kept = self._kept.pop(number, None)
            if self._live.pop(number, None) is None:
                return
            if self._paused and not at_once:
                self._waiting.append(give_back)
            else:
                give_back()
            del kept

        return number, finalize

    def keep(self, number: int, memory: object) -> None:
        """Keeps the object that stands for a piece until its finalizer runs: Numba's own pointers refer to it weakly."""
        self._kept[number] = memory

    def reset(self) -> None:
        """Gives everything back."""
        while self._live:
            _, give_back = self._live.popitem()
            give_back()
        self._kept.clear()
        self._flush()

    def _flush(self) -> None:
        while self._waiting:
            self._waiting.pop()()

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Nothing goes back inside; what was due does at the end of the outermost block."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1
            if self._paused == 0:
                self._flush()
