"""What works under PyTorch's own allocator, RMM's plug-in, a bare pluggable allocator, and Forebay in both modes: a table.

    python3 tests/gpu/torch/columns.py [--only ROW,ROW] [--columns native,forebay] [--jobs 10]

Each cell is a small program of probes.py in a process of its own, so that a crash is one answer. Prints Markdown, and why a
cell is not "yes"; with OUT=folder also $OUT/columns.json and $OUT/columns.md, and what the programs print in $OUT/columns.log.
Ends with 1 if a cell of Forebay's adapter is not "yes". RMM: carry its wheels, and name their folder in PYTHONPATH.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from common import ROOT

sys.path.insert(0, str(ROOT / "benches" / "frameworks"))
import allocators  # noqa: E402  (is found there)
import probes  # noqa: E402

COLUMNS = {"native": "native", "rmm-pool": "RMM", "bare": "bare plug-in", "forebay-base": "Forebay, base", "forebay": "Forebay"}
ROWS = {probe.__name__: (probe, title, limit) for probe, title, limit in [*probes.ALONE, *probes.TOGETHER]}
MARK = "cell: "
log_lock = threading.Lock()


def short(error):
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]


def answer(name, column, torch):
    """One cell, in this process."""
    try:
        ROWS[name][0](torch, column)
        torch.cuda.synchronize()
        return "yes", ""
    except (probes.Wrong, probes.Absent) as error:
        return "wrong" if isinstance(error, probes.Wrong) else "no", str(error)[:200]
    except BaseException as error:
        traceback.print_exc()
        return "wrong" if "illegal memory access" in str(error) else "no", short(error)


def child(column, names):
    """Prints a line for each cell as soon as it is known."""
    try:
        torch = allocators.torch_on(column)
    except Exception as error:
        traceback.print_exc()
        for name in names:
            print(MARK + json.dumps([name, "not tried", short(error)]), flush=True)
        return
    for name in names:
        cell = answer(name, column, torch)
        print(MARK + json.dumps([name, *cell]), flush=True)
        if cell[0] != "yes":
            print(MARK + json.dumps(["", "the rest in a new process", ""]), flush=True)
            break
    os._exit(0)  # without taking anything down: a plug-in may be gone before PyTorch's last tensor


def run(column, names):
    """{row: (answer, why)}; what a crash or the time limit leaves open gets a new process."""
    found, left = {}, list(names)
    while left:
        limit = 30 + sum(ROWS[name][2] for name in left) if len(left) > 1 else ROWS[left[0]][2]
        environment = allocators.environment(column)
        environment.update(TORCHINDUCTOR_COMPILE_THREADS="1", OMP_NUM_THREADS="2")
        command = [sys.executable, "-X", "faulthandler", str(Path(__file__).resolve()), "--child", column, *left]
        started = time.monotonic()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
        try:
            text, end = process.communicate(timeout=limit)[0], f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            # Its own children too: the session is its, and holds nobody else.
            os.killpg(process.pid, 9)
            text, end = process.communicate()[0], f"over {limit} s"
        if out := os.environ.get("OUT"):
            with log_lock, open(Path(out) / "columns.log", "a") as log:
                log.write(f"\n==== {column}: {' '.join(left)} ({time.monotonic() - started:.0f} s, {end})\n{text}")
        for line in text.splitlines():
            if MARK in line:
                name, *cell = json.loads(line.split(MARK, 1)[1])
                found[name] = tuple(cell)
        remain = [name for name in left if name not in found]
        if found.pop("", None):
            left = remain
            continue
        if remain:
            # The one that it was at when it ended. A negative exit is a signal: a crash.
            found[remain[0]] = ("no" if end.startswith("over") else "crash", end)
        left = remain[1:]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(ROWS), help="rows, by the names of the functions in probes.py")
    parser.add_argument("--columns", default=",".join(COLUMNS), help="%(default)s")
    parser.add_argument("--jobs", type=int, default=10, help="processes at a time (%(default)s)")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child[0], options.child[1:])
    rows, columns = options.only.split(","), options.columns.split(",")
    if unknown := (set(rows) - set(ROWS)) | (set(columns) - set(COLUMNS)):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    begun = time.monotonic()
    if "forebay" in columns:  # once, not by ten processes at a time
        command = [sys.executable, "-m", "forebay.torch", "build"]
        subprocess.run(command, env=allocators.environment("forebay"), timeout=180, check=False)
    together = [probe.__name__ for probe, _, _ in probes.TOGETHER if probe.__name__ in rows]
    single = [name for name in rows if name not in together]
    # Slow ones first. What reads the device's memory: one process after the other.
    single.sort(key=lambda name: -ROWS[name][2])
    cells = {}

    def device_rows():
        return [(column, run(column, together)) for column in columns if together]

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        serial = pool.submit(device_rows)
        futures = [(column, pool.submit(run, column, [name])) for name in single for column in columns]
        for column, found in [*((column, future.result()) for column, future in futures), *serial.result()]:
            cells.update({(name, column): cell for name, cell in found.items()})
    return show(rows, columns, cells, time.monotonic() - begun)


def show(rows, columns, cells, seconds):
    lines = ["| | " + " | ".join(COLUMNS[column] for column in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    notes = []
    for name in rows:
        found = [cells[name, column] for column in columns]
        lines.append(f"| {ROWS[name][1]} | {' | '.join(word for word, _ in found)} |")
        notes += [f"{name}, {column}: {word}: {why}" for column, (word, why) in zip(columns, found) if word != "yes"]
    text = "\n".join([*lines, "", *notes])
    print(f"\n{text}\n\n{len(cells)} cells in {seconds:.0f} s", flush=True)
    if out := os.environ.get("OUT"):
        found = [{"row": name, "column": column, "answer": word, "why": why} for (name, column), (word, why) in cells.items()]
        (Path(out) / "columns.json").write_text(json.dumps(found, indent=1))
        (Path(out) / "columns.md").write_text(text + "\n")
    if "forebay" not in columns:
        return 0
    bad = [name for name in rows if cells[name, "forebay"][0] != "yes"]
    print(f"Forebay's adapter: {len(rows) - len(bad)} of {len(rows)} rows{': not ' + ', '.join(bad) if bad else ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
