"""Forebay beside the other allocators: the same workloads, each contender in a process of its own, in turns.

    python3 benches/peers/run.py [--quick] [--rounds N] [--only WORKLOAD_OR_CONTENDER]... [--out FOLDER]

Needs a GPU, nvcc, a C++20 compiler, and FOREBAY_LIBRARY (the library); RMM and PyTorch where their packages are. The traces
are in the folder FOREBAY_TRACES names, as `*.csv.gz` of `op,id,bytes,stream` lines. Prints Markdown and writes `peers.md`,
`peers.json`, `peers.log`, `time.csv` and its chart `time.svg` to FOLDER, else to $OUT, else to the folder of the build. A
contender that does not build, load or finish is named, and the others go on. Ends with 0 if Forebay was measured, whatever
the targets say.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from chart import write_times
from contenders import CONTENDERS, WORKLOADS, Contender
from places import ROOT, Missing
from rounds import Rounds, loading
from table import markdown, summary
from targets import judge
from toolchain import Toolchain
from traces import unpack_all


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of short measurements: under 90 s")
    parser.add_argument("--rounds", type=int, help="how often everybody has a turn (3; quick 1)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help=f"a workload ({', '.join(WORKLOADS)}) or a contender ({', '.join(c.name for c in CONTENDERS)})")
    parser.add_argument("--deadline", type=float, help="seconds from the start after which no process is begun (205; quick 75)")
    parser.add_argument("--cap", type=float, help="seconds after which a pass of a long script is stopped (2.5; quick 1)")
    parser.add_argument("--out", type=Path, help="where the results go")
    parser.add_argument("--build", type=Path, default=ROOT / "target/peers", help="where the programs are built")
    return parser.parse_args()


def chosen(only: list[str]) -> tuple[list[Contender], list[str]]:
    """The contenders and the workloads that were asked for; no workloads: all."""
    names = {c.name for c in CONTENDERS}
    for name in only:
        if name not in names and name not in WORKLOADS:
            raise SystemExit(f"no workload and no contender {name}; try --help")
    workloads = [name for name in only if name in WORKLOADS]
    wanted = [name for name in only if name in names]
    return [
        c for c in CONTENDERS
        if (not wanted or c.name in wanted) and (not workloads or any(w in workloads for w in (c.start, *c.workloads)))
    ], workloads


def machine() -> str:
    words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown GPU"


def main() -> int:
    options = arguments()
    begun = time.monotonic()
    deadline = begun + (options.deadline or (75 if options.quick else 205))
    out = options.out or Path(os.environ.get("OUT", options.build))
    out.mkdir(parents=True, exist_ok=True)
    log = out / "peers.log"
    log.write_text("")
    contenders, workloads = chosen(options.only)
    try:
        toolchain = Toolchain(options.build)
        programs = toolchain.build(contenders)
    except (Missing, subprocess.SubprocessError) as error:
        print(f"cannot build: {error}", file=sys.stderr)
        return 1
    print(f"built in {time.monotonic() - begun:.0f} s", flush=True)

    words = ["--quick"] if options.quick else []
    traces = os.environ.get("FOREBAY_TRACES")
    if not workloads or "replay" in workloads:
        if traces and Path(traces).is_dir():
            print(f"traces: {', '.join(unpack_all(Path(traces), options.build / 'traces')) or 'none in ' + traces}", flush=True)
            words += ["--traces", str(options.build / "traces")]
        else:
            print("no traces: FOREBAY_TRACES names no folder", flush=True)

    rounds = Rounds(programs, words, options.cap or (1 if options.quick else 2.5), deadline, log)
    for contender in contenders:
        if isinstance(programs[contender.program], str):
            rounds.troubles.append(f"{contender.title}: {programs[contender.program]}")
    if not workloads or "start" in workloads:
        rounds.figures["start", "library load"] = loading(programs["load"], toolchain.loaded(), toolchain.cuda_libraries, 5)
    turns = 0
    for turn in range(options.rounds or (1 if options.quick else 3)):
        for contender in contenders[turn % len(contenders) :] + contenders[: turn % len(contenders)]:
            rounds.turn(contender, workloads)
        turns += time.monotonic() < deadline
        print(f"round {turn + 1}: {time.monotonic() - begun:.0f} s", flush=True)
    rounds.ratios()
    return report(rounds, out, options, turns)


def report(rounds: Rounds, out: Path, options: argparse.Namespace, turns: int) -> int:
    """Writes and prints everything."""
    about = f"{machine()}, {rounds.facts.get('cores', '?')} cores, {time.strftime('%Y-%m-%d')}, {turns} whole rounds"
    about += ", quick" if options.quick else ""
    text = markdown(rounds, about)
    (out / "peers.md").write_text(text)
    verdicts = judge(rounds)
    (out / "peers.json").write_text(json.dumps({
        "about": about,
        "seconds": rounds.seconds,
        "troubles": rounds.troubles,
        "figures": [
            {"workload": key[0], "case": key[1], "contender": name, "unit": f.unit, "median": f.median, "values": f.values,
             "note": f.note, "cannot": f.cannot}
            for key, row in rounds.figures.items() for name, f in row.items()
        ],
        "targets": [{"workload": k[0], "case": k[1], "wanted": w, "verdict": v} for k, (w, v) in verdicts.items()],
    }, indent=1))
    print(text)
    write_times(rounds, out, time.strftime("%Y-%m-%d"))
    print(summary(rounds))
    return 0 if any("forebay" in row or "forebay_pinned" in row for row in rounds.figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
