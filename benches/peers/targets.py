"""What Forebay is meant to reach, and whether it did."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contenders import CONTENDERS
from rounds import Figure, Key, Rounds

NOISE = 0.97  # where the time is that of kernels, a difference of 3 % says nothing
OURS = {c.name for c in CONTENDERS if c.role == "ours"}
PEERS = {c.name for c in CONTENDERS if c.role == "peer"}


def ours(row: dict[str, Figure]) -> float | None:
    return next((figure.median for name, figure in row.items() if name in OURS and figure.median is not None), None)


def more_is_better(row: dict[str, Figure]) -> bool:
    return any(figure.unit in ("M pairs/s", "x") for figure in row.values())


def best_peer(row: dict[str, Figure]) -> tuple[str, float] | None:
    values = [(name, f.median) for name, f in row.items() if name in PEERS and f.median is not None]
    if not values:
        return None
    return (max if more_is_better(row) else min)(values, key=lambda pair: pair[1])


def ratio(row: dict[str, Figure]) -> float | None:
    """How many times better than the best peer Forebay is."""
    mine, best = ours(row), best_peer(row)
    if not mine or best is None or not best[1]:
        return None
    return mine / best[1] if more_is_better(row) else best[1] / mine


@dataclass(frozen=True)
class Target:
    """Bounds for the rows whose workload and case match."""

    workload: str
    case: str  # a regular expression for the whole case
    times: float | None = None  # at least so many times better than the best peer
    above: bool = False  # `times` must be exceeded
    most: float | None = None  # at most this, in the row's unit
    least: float | None = None  # at least this

    def wanted(self) -> str:
        parts = []
        if self.times is not None:
            parts.append(f"{'>' if self.above else '≥'} {self.times:g} ×")
        if self.most is not None:
            parts.append(f"≤ {self.most:g}")
        if self.least is not None:
            parts.append(f"≥ {self.least:g}")
        return ", ".join(parts)

    def verdict(self, row: dict[str, Figure]) -> str | None:
        """PASS, or what was missed; None if there is no figure."""
        mine, times = ours(row), ratio(row)
        if mine is None:
            return None
        missed = []
        if self.times is not None:
            if times is None:
                missed.append("no peer")
            elif times < self.times or (self.above and times == self.times):
                missed.append(f"{times:.3g} ×")
        if self.most is not None and mine > self.most:
            missed.append(f"{mine:.4g} > {self.most:g}")
        if self.least is not None and mine < self.least:
            missed.append(f"{mine:.3g} < {self.least:g}")
        return f"miss: {', '.join(missed)}" if missed else "PASS"


TARGETS = (
    Target("start", "library load", most=5000),
    Target("start", "first allocation", most=1000),
    Target("pairs", "(512 B|4 KiB|64 KiB|1 MiB|2 MiB|16 MiB|64 MiB), own stream", times=10, most=40),
    Target("random", "up to 1 MiB", times=3, most=80),
    Target("random", "up to 64 MiB", times=4),
    Target("kernels", r"\d streams?, (warm|cold)", times=NOISE),
    Target("threads", "8 threads, own stream each", times=20),
    Target("threads", "8 threads over 1, own stream each", least=7),
    Target("threads", r"(2|4|8|16) threads, one stream", times=1, above=True),
    Target("other_thread", ".*", times=1, above=True),
    Target("pinned_pairs", "4 KiB|1 MiB|64 MiB", most=60),
    Target("pinned_random", ".*, physical / live", most=1.06),
)


def target_of(key: Key) -> Target | None:
    return next((t for t in TARGETS if t.workload == key[0] and re.fullmatch(t.case, key[1])), None)


def judge(rounds: Rounds) -> dict[Key, tuple[str, str]]:
    """What was wanted and what came of it, for each row that has a target and a figure."""
    found = {}
    for key, row in rounds.figures.items():
        target = target_of(key)
        verdict = target.verdict(row) if target else None
        if target and verdict:
            found[key] = (target.wanted(), verdict)
    return found
