"""Unpacks traces of `op,id,bytes,stream` lines into rows of steps as harness/script.h has them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

STEP = struct.Struct("<QIHH")


def unpack(trace: Path, out: Path) -> int:
    """Writes the steps of `trace` to `out`; gives how many there are."""
    slots: dict[str, tuple[int, int, int]] = {}
    unused: list[int] = []
    streams: dict[str, int] = {}
    steps = bytearray()
    count = highest = 0
    with gzip.open(trace, "rt") as lines:
        for line in lines:
            if line.startswith("#") or not line.strip():
                continue
            op, block, size, stream = line.rstrip("\n").split(",")
            if op == "a":
                if unused:
                    slot = unused.pop()
                else:
                    slot, highest = highest, highest + 1
                place = slots[block] = (int(size), slot, streams.setdefault(stream, len(streams)))
            else:
                if block not in slots:  # allocated before the trace began
                    continue
                place = slots.pop(block)
                unused.append(place[1])
            steps += STEP.pack(*place, op == "a")
            count += 1
    out.write_bytes(steps)
    return count


def unpack_all(folder: Path, out: Path) -> list[str]:
    """Every `*.csv.gz` of the folder; gives the names of the traces."""
    out.mkdir(parents=True, exist_ok=True)
    names = []
    for trace in sorted(folder.glob("*.csv.gz")):
        name = trace.name.removesuffix(".csv.gz")
        unpack(trace, out / f"{name}.steps")
        names.append(name)
    return names
