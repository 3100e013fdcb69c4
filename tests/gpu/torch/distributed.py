"""Two GPUs under NCCL, a process for each: DDP, FSDP in both forms, messages, collectives on side streams and in graphs.

    python3 tests/gpu/torch/distributed.py [SCENARIO ...]

Every scenario of ranks.py runs under PyTorch's own allocator and under Forebay with the same seeds. The losses must be native's
on each rank, no value may be wrong, and Forebay must hold less memory than native. A pair of ranks does several scenarios; when
one fails, a new pair does those that are left. With OUT=folder everything the ranks print is in $OUT/distributed.log.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import MIB, close, finish, must

HERE = Path(__file__).parent
TRAINING, VALUES = ("ddp", "fsdp2", "fsdp1"), ("messages", "streams")
#: NCCL maps user memory into the other process there, and may refuse it in a way that ends the rank.
MAPPED = ("graph", "own_pool", "nccl_pool")
#: NVLink multicast stays off. The rest makes one seed give one result, and keeps a hung rank from hanging the other.
ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_DEBUG": "WARN", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2",
    "OMP_NUM_THREADS": "4",
}  # fmt: skip
DEADLINE = time.monotonic() + float(os.environ.get("DISTRIBUTED_SECONDS", "230"))
faults = []


def check(holds, what):
    print(f"  {'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        faults.append(what)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait(ranks, limit):
    """Until both have ended, one has failed and the other had five seconds to follow, or the time is up."""
    end = min(time.monotonic() + limit, DEADLINE)
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < end:
        if any(rank.poll() for rank in ranks):
            end = min(end, time.monotonic() + 5)
        time.sleep(0.05)
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
        rank.wait()


def run_pair(allocator, scenarios, **extra):
    """What each rank left for each scenario: {scenario: [figures of rank 0, of rank 1]}, up to the first with an "error"."""
    if time.monotonic() > DEADLINE:
        return {name: [{"error": "no time was left for it"}] * 2 for name in scenarios}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        port, ranks, logs = str(free_port()), [], [Path(folder) / f"{rank}.log" for rank in range(2)]
        for rank in range(2):
            environment = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
            environment.update(ENVIRONMENT, MASTER_PORT=port, RANK=str(rank), LOCAL_RANK=str(rank), **extra)
            if allocator == "expandable":
                environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
            with open(logs[rank], "wb") as log:
                command = [sys.executable, "-X", "faulthandler", str(HERE / "ranks.py"), allocator, folder, *scenarios]
                ranks.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        wait(ranks, 30 + 10 * len(scenarios))
        codes, found = [rank.returncode for rank in ranks], {}
        for name in scenarios:
            places = [Path(folder) / f"{name}.{rank}.json" for rank in range(2)]
            nothing = [{"error": f"the rank ended with {code} before it was done"} for code in codes]
            found[name] = [json.loads(place.read_text()) if place.exists() else none for place, none in zip(places, nothing)]
            if error(found[name]):
                break
        texts = [
            f"---- {allocator} {' '.join(scenarios)}, rank {n}\n{log.read_text(errors='replace')}" for n, log in enumerate(logs)
        ]
    if out := os.environ.get("OUT"):
        with open(Path(out) / "distributed.log", "a") as log:
            log.writelines(texts)
    print(f"  {allocator}: {', '.join(found)} in {time.monotonic() - started:.0f} s, exits {codes}", flush=True)
    if any(codes):
        for text in texts:
            print("    " + "\n    ".join(line[:200] for line in text.splitlines()[-8:]), flush=True)
        if not any(map(error, found.values())):
            check(False, f"{allocator}: the ranks end well")
    return found


def run(allocator, scenarios, **extra):
    """As run_pair, with a new pair for what is left behind a failure."""
    found, left = {}, list(scenarios)
    while left:
        found.update(run_pair(allocator, left, **extra))
        left = [name for name in left if name not in found]
    return found


def error(*answers):
    return next((rank["error"] for answer in answers for rank in answer if "error" in rank), None)


def judge_training(name, theirs, ours, grown):
    if what := error(theirs, ours):
        return check(False, f"{name}: {what}")
    for rank, (a, b) in enumerate(zip(theirs, ours)):
        same = a["losses"] == b["losses"]
        text = "to the last bit"
        if not same:
            text = f"first different in step {[x == y for x, y in zip(a['losses'], b['losses'])].index(False)}"
        check(
            same or close(b["losses"], a["losses"], 1e-3), f"{name}, rank {rank}: {len(b['losses'])} losses as native's, {text}"
        )
        check(
            b["held"] < a["held"],
            f"{name}, rank {rank}: MiB live {b['live'] // MIB}; held {b['held'] // MIB}, native {a['held'] // MIB}; device "
            f"{b['device'] // MIB}, native {a['device'] // MIB}; ratio {b['held'] / b['live']:.4f}, native "
            f"{a['held'] / a['live']:.4f}; s {b['seconds']:.2f}, native {a['seconds']:.2f}",
        )
        print(f"       s for ten steps {b['tens']}, native {a['tens']}; pool {b['pool']}", flush=True)
    if not error(grown):
        texts = [f"held {rank['held'] // MIB}, s {rank['seconds']:.2f}, ten steps {rank['tens']}" for rank in grown]
        print(f"       expandable segments: {'; '.join(texts)}", flush=True)
    by = {"native": theirs, "expandable": grown, "forebay": ours}
    print(json.dumps({"bench": f"two GPUs, {name}", **{who: strip(answer) for who, answer in by.items()}}), flush=True)


def strip(answer):
    return [{key: value for key, value in rank.items() if key != "losses"} for rank in answer]


def judge_values(name, answer, *, who="Forebay"):
    if what := error(answer):
        return check(False, f"{name}, {who}: {what}")
    wrong = [rank["wrong"] for rank in answer]
    return check(not any(wrong), f"{name}, {who}: {answer[0]['what']}; wrong values {wrong}")


def judge_mapped(name, theirs, ours):
    """Forebay has to do what native does. Where it does not, expandable segments, whose memory is of several pieces too, are
    tried for comparison."""
    if what := error(theirs):
        return print(f"  --   {name}: not under native either: {what}")
    judge_values(name, theirs, who="native")
    judge_values(name, ours)
    if error(ours) or any(rank["wrong"] for rank in ours):
        print(f"    expandable segments: {run('expandable', [name])[name]}")


def main():
    import torch

    if torch.cuda.device_count() < 2:
        print("  skipped: one GPU")
        return finish()
    import forebay

    if os.environ.get("FOREBAY_TORCH_MODE") != "base":
        print(f"  adapter at {forebay.torch.build()}", flush=True)  # once, not by both ranks at a time
    wanted = sys.argv[1:] or [*TRAINING, *VALUES, *MAPPED]
    if unknown := set(wanted) - {*TRAINING, *VALUES, *MAPPED}:
        sys.exit(f"unknown: {', '.join(unknown)}")
    theirs, ours = run("native", wanted), run("forebay", wanted)
    # No contender: its pool grows by small pieces too, so it shows what of Forebay's time is growing.
    grown = run("expandable", [name for name in wanted if name in TRAINING])
    for name in wanted:
        if name in TRAINING:
            judge_training(name, theirs[name], ours[name], grown[name])
        elif name in VALUES:
            judge_values(name, theirs[name], who="native")
            judge_values(name, ours[name])
        else:
            judge_mapped(name, theirs[name], ours[name])
    must(not faults, f"{len(faults)} failed" + "".join(f"\n       {fault}" for fault in faults))
    return finish()


if __name__ == "__main__":
    main()
