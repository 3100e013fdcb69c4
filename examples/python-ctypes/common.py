"""What the examples share: leaving when a framework is missing, sizes in words, tables."""

import importlib
import os
import sys

MISSING = 77  # what automake and friends read as "skipped"


def need(*modules: str):
    """Imports the modules, or ends the program with a line that says which one is not installed."""
    found = []
    for name in modules:
        try:
            found.append(importlib.import_module(name))
        except ImportError as error:
            print(f"skipped: {os.path.basename(sys.argv[0])} needs {name}, which cannot be imported here: {error}")
            sys.exit(MISSING)
    return found[0] if len(found) == 1 else found


def must(truth: bool, what: str) -> None:
    """Prints what was checked, or ends the program with it."""
    print(f"  {'ok  ' if truth else 'FAIL'} {what}", flush=True)
    if not truth:
        sys.exit(1)


def mib(size: float) -> str:
    return f"{size / (1 << 20):,.1f}"


def table(heads, rows) -> None:
    """Left column left, the others right."""
    cells = [list(map(str, heads))] + [list(map(str, row)) for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for number, row in enumerate(cells):
        line = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  ".join(line))
        if number == 0:
            print("  ".join("-" * width for width in widths))
    sys.stdout.flush()


STATS_HEADS = ["after", "torch", "cupy", "live", "physical", "hits", "steals", "growths", "waits"]


def stats_row(what: str, figures: dict) -> list:
    """One line of the stats table, sizes in MiB."""
    by = figures["live_by_framework"]
    sizes = [by["torch"], by["cupy"], figures["live"], figures["physical"]]
    counts = [figures[name] for name in ("hits", "steals", "growths", "waits")]
    return [what, *map(mib, sizes), *counts]
