"""Runs every program here in a process of its own, in adapter mode and where that makes sense in base mode too.

``all.py [--mode adapter|base] [--without NAME] [NAME ...]`` ends with a table, and exits with 0 if all passed.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent

#: Seconds, and whether base mode has it too. "own": it chooses its modes itself.
PROGRAMS = {
    "stats": (90, "adapter base"),
    "oom": (90, "adapter base"),
    "fraction": (60, "adapter base"),
    "empty_cache": (60, "adapter base"),
    "give_back": (120, "adapter base"),
    "record_stream": (90, "adapter base"),
    "graphs": (120, "adapter base"),
    "snapshot": (90, "adapter"),
    "history": (90, "adapter"),
    "cudnn_benchmark": (120, "adapter"),
    "mempool": (90, "adapter"),
    "region": (120, "own"),
    "install_errors": (240, "own"),
    "multiprocessing_share": (150, "adapter"),
    "training": (240, "adapter base"),
    "compile": (600, "adapter"),
    "two_gpus": (120, "adapter"),
    "distributed": (280, "adapter"),
}


def run(name, mode, limit):
    environment = dict(os.environ)
    if mode != "own":
        environment["FOREBAY_TORCH_MODE"] = mode
    started = time.monotonic()
    print(f"==== {name} ({mode})", flush=True)
    try:
        done = subprocess.run([sys.executable, "-X", "faulthandler", str(HERE / f"{name}.py")], env=environment, timeout=limit)
        result = "ok" if done.returncode == 0 else f"FAILED, exit {done.returncode}"
    except subprocess.TimeoutExpired:
        result = f"FAILED, over {limit} s"
    return name, mode, result, time.monotonic() - started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("adapter", "base"))
    parser.add_argument("--without", action="append", default=[], choices=PROGRAMS, metavar="NAME")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(PROGRAMS):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    rows = []
    for name, (limit, modes) in PROGRAMS.items():
        if name in arguments.without or (arguments.names and name not in arguments.names):
            continue
        rows += [run(name, mode, limit) for mode in modes.split() if arguments.mode in (None, mode)]
    print(f"\n{'program':24}{'mode':10}{'seconds':>8}  result")
    for name, mode, result, seconds in rows:
        print(f"{name:24}{mode:10}{seconds:8.1f}  {result}")
    passed = sum(result == "ok" for _, _, result, _ in rows)
    print(f"{passed} passed, {len(rows) - passed} failed")
    return 0 if passed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
