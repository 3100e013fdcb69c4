"""Runs the programs in turns and collects their figures."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contenders import Contender

SLOW = 1.2  # a workload of a contender that took so many seconds is not repeated in later rounds
OURS_SLOW = 5  # the same for Forebay, whose figures are half of every comparison
LIMIT = 150  # seconds for one process


@dataclass
class Figure:
    """One case of one contender over all rounds."""

    unit: str = ""
    values: list[float] = field(default_factory=list)
    note: str = ""
    cannot: str = ""  # why there is no value

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None


Key = tuple[str, str]  # workload, case


class Rounds:
    """Figures by key and contender. Whatever fails is a line in `troubles`, and the rest goes on."""

    def __init__(self, programs: dict[str, Path | str], options: list[str], cap: float, deadline: float, log: Path) -> None:
        self.programs = programs
        self.options = options
        self.cap = cap
        self.deadline = deadline
        self.log = log
        self.figures: dict[Key, dict[str, Figure]] = {}
        self.facts: dict[str, str] = {}
        self.troubles: list[str] = []
        self.slow: set[tuple[str, str]] = set()  # contender, workload
        self.seconds: dict[str, float] = {}

    def turn(self, contender: Contender, wanted: list[str] | None) -> None:
        """One process of a contender, and more if one dies: each goes on behind the workload that killed the last."""
        program = self.programs[contender.program]
        if isinstance(program, str):
            return
        left = [
            w for w in (contender.start, *contender.workloads)
            if (not wanted or w in wanted) and (contender.name, w) not in self.slow
        ]
        if left == [contender.start] and contender.name in self.seconds:  # nothing is left to repeat
            return
        while left and time.monotonic() < self.deadline:
            begun = time.monotonic()
            dead = self.process(contender, program, left)
            self.seconds[contender.name] = self.seconds.get(contender.name, 0) + time.monotonic() - begun
            if dead is None:
                return
            self.slow.add((contender.name, dead))
            if dead == contender.start:
                self.slow.update((contender.name, w) for w in contender.workloads)
                return
            left = left[left.index(dead) + 1 :] if dead in left else []

    def process(self, contender: Contender, program: Path, workloads: list[str]) -> str | None:
        """Gives the workload in which the process died, or None."""
        words = [str(program), *self.options, "--cap", str(self.cap * contender.patience), *workloads]
        limit = min(LIMIT, max(20.0, self.deadline - time.monotonic() + 20))
        ended = ""
        try:
            surroundings = {**os.environ, **contender.environment}
            done = subprocess.run(words, capture_output=True, text=True, timeout=limit, env=surroundings)
            out, errors = done.stdout, done.stderr
            if done.returncode != 0:
                said = errors.strip().splitlines() or [""]
                why = next((line for line in said if "what():" in line), said[0])
                ended = f"ended with {done.returncode}: {why.strip()[:200]}"
        except subprocess.TimeoutExpired as error:
            out = (error.stdout or b"").decode(errors="replace")
            errors = (error.stderr or b"").decode(errors="replace")
            ended = f"stopped after {limit:.0f} s"
        with self.log.open("a") as log:
            log.write(f"== {' '.join(words)}\n{out}{errors}\n{ended}\n")
        current = self.read(contender, out)
        if not ended:
            return None
        self.troubles.append(f"{contender.title}, {current}: {ended}")
        return current

    def read(self, contender: Contender, out: str) -> str:
        """Takes the figures over; gives the workload that was begun last."""
        current = contender.start
        for text in out.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            current = line["workload"]
            if "fact" in line:
                self.facts[line["fact"]] = line["value"]
            elif "seconds" in line:
                if line["seconds"] > (OURS_SLOW if contender.role == "ours" else SLOW):
                    self.slow.add((contender.name, current))
            elif "case" in line:
                self.add(contender, (current, line["case"]), line)
        return current

    def add(self, contender: Contender, key: Key, line: dict[str, Any]) -> None:
        if "cannot" in line and not line["case"]:
            self.troubles.append(f"{contender.title}, {key[0]}: {line['cannot']}")
            return
        figure = self.figures.setdefault(key, {}).setdefault(contender.name, Figure())
        if "cannot" in line:
            figure.cannot = line["cannot"]
            return
        figure.unit = line["unit"]
        figure.values.append(line["value"])
        figure.note = line.get("note", figure.note)

    def ratios(self) -> None:
        """How the threads of each contender scale: a row of its own, of the medians."""
        for name in ("own stream each", "no allocator", "no allocator, cores filled"):
            one = self.figures.get(("threads", f"1 thread, {name}"), {})
            many = self.figures.get(("threads", f"8 threads, {name}"), {})
            for contender in one.keys() & many.keys():
                below, above = one[contender].median, many[contender].median
                if below and above:
                    row = self.figures.setdefault(("threads", f"8 threads over 1, {name}"), {})
                    row[contender] = Figure("x", [above / below])


def loading(loader: Path | str, libraries: dict[str, Path], cuda: Path, repeats: int) -> dict[str, Figure]:
    """Microseconds until a fresh process has loaded each library."""
    found = {}
    for name, library in libraries.items():
        figure = found[name] = Figure("us")
        if isinstance(loader, str):
            figure.cannot = loader
            continue
        # What a Python program finds by its package's loader.
        beside = [library.parent, cuda, *library.parent.parent.parent.glob("rapids_logger/lib64")]
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, beside))}
        for _ in range(repeats):
            done = subprocess.run([loader, library], capture_output=True, text=True, env=environment, timeout=60)
            if done.returncode != 0:
                figure.cannot = done.stderr.strip()[:200]
                break
            figure.values.append(float(done.stdout))
    return found
