"""Trains a model whose shapes change every step, under PyTorch's own allocators and under Forebay.

    python3 torch_train.py                                  every allocator, small text model, one table
    python3 torch_train.py --model graph --size full        the sizes of the published figures (H200)
    python3 torch_train.py --mode forebay --json            one run, one JSON line

Peak live and peak physical memory are the allocator's own figures; `device` is what the driver says the whole process
took, and `context` the difference at the end: kernels and library workspaces that no pool holds. With --check the
program fails where Forebay does not keep its promises.
"""

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import time

from common import mib, need, table

MODES = {"native": "backend:native", "expandable": "backend:native,expandable_segments:True",
         "async": "backend:cudaMallocAsync", "forebay": ""}  # fmt: skip
SEED = 20261120


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument("--model", choices=["text", "graph"], default="text")
    parser.add_argument("--size", choices=["small", "full"], default="small")
    parser.add_argument("--steps", type=int, help="default: the model's own")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line too, with every loss")
    parser.add_argument("--check", action="store_true", help="fail unless Forebay keeps its promises (mode all)")
    return parser.parse_args()


class Torch:
    """Reads PyTorch's own account; the same three questions as `Forebay` below."""

    def __init__(self, torch, mode):
        self.torch = torch
        expected = "cudaMallocAsync" if mode == "async" else "native"
        assert torch.cuda.get_allocator_backend() == expected, "PYTORCH_ALLOC_CONF was not obeyed"

    def reset(self):
        self.torch.cuda.reset_peak_memory_stats()

    def peaks(self):
        stats = self.torch.cuda.memory_stats()
        return stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]

    def held(self):
        return self.torch.cuda.memory_reserved()


class Forebay:
    def __init__(self):
        import forebay_ctypes

        self.forebay = forebay_ctypes
        self.forebay.torch_install()

    def reset(self):
        self.forebay.lib.forebay_pool_reset_peaks(self.forebay.shared(), 0)

    def peaks(self):
        stats = self.forebay.stats()
        return stats["live_peak"], stats["physical_peak"]

    def held(self):
        return self.forebay.stats()["physical"]


def device_used(torch) -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def train(options) -> dict:
    """One run. Nothing is synchronised but every tenth loss, as a training script would print it."""
    torch = need("torch")
    account = Forebay() if options.mode == "forebay" else Torch(torch, options.mode)
    # One seed, one result: no kernel may depend on the order in which atomics happen to land.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(SEED)
    torch.cuda.init()
    before = device_used(torch)

    from models import MODELS

    kind = MODELS[options.model]
    steps = options.steps or kind.STEPS[options.size]
    model = kind(options.size, "cuda")
    adam = torch.optim.Adam(model.parameters(), lr=1e-4)
    rng, generator = random.Random(SEED), torch.Generator("cuda").manual_seed(SEED)

    def step(warm_up: bool):
        adam.zero_grad(set_to_none=True)
        loss = model.loss(model.shape(rng, warm_up), generator)
        loss.backward()
        adam.step()
        return loss.detach()

    for _ in range(3):  # tiny: loads kernels and libraries, teaches the allocator nothing
        step(warm_up=True)
    torch.cuda.synchronize()
    account.reset()

    losses, start = [], time.perf_counter()
    device_peak = 0
    for number in range(steps):
        losses.append(step(warm_up=False))
        if number % 10 == 9:
            losses[-1].item()
            device_peak = max(device_peak, device_used(torch))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    device_peak = max(device_peak, device_used(torch)) - before
    context = device_used(torch) - before - account.held()
    live, physical = account.peaks()
    losses = [loss.item() for loss in losses]
    del model, adam, step
    gc.collect()
    return {
        "model": options.model, "size": options.size, "mode": options.mode, "steps": steps, "seconds": seconds,
        "peak_live_bytes": live, "peak_physical_bytes": physical, "ratio": physical / live,
        "device_peak_bytes": device_peak, "context_bytes": context, "losses": losses,
    }  # fmt: skip


def run_one(options, mode, steps=None) -> dict:
    """Each allocator needs a process of its own: PyTorch chooses once."""
    command = [sys.executable, os.path.abspath(__file__), "--mode", mode, "--model", options.model]
    command += ["--size", options.size, "--json"]
    if steps or options.steps:
        command += ["--steps", str(steps or options.steps)]
    environment = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{mode}: exit {done.returncode}\n{done.stdout}")
        sys.exit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def show(results) -> None:
    heads = ["allocator", "seconds", "live MiB", "physical MiB", "ratio", "device MiB", "context MiB", "last loss"]
    rows = []
    for r in results:
        sizes = [mib(r[name]) for name in ("peak_live_bytes", "peak_physical_bytes")]
        device = [mib(r[name]) for name in ("device_peak_bytes", "context_bytes")]
        rows.append([r["mode"], f"{r['seconds']:.2f}", *sizes, f"{r['ratio']:.4f}", *device, f"{r['losses'][-1]:.6f}"])
    first = results[0]
    print(f"{first['model']} ({first['size']}), {first['steps']} steps; peaks:")
    table(heads, rows)


def judge(results, check: bool) -> bool:
    by = {r["mode"]: r for r in results}
    ours, native, expandable = by["forebay"], by["native"], by["expandable"]
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours["losses"], native["losses"]))
    same = "to the last bit" if worst == 0 else f"within {worst:.1e}"
    promises = [
        (f"losses as native's, {same}", worst <= 1e-3, True),
        ("physical within 1.01 of live", ours["ratio"] <= 1.01, check),
        ("physical below expandable segments", ours["peak_physical_bytes"] < expandable["peak_physical_bytes"], check),
        # Two runs of one allocator differ by a per cent or so.
        (f"time {ours['seconds'] / native['seconds']:.3f} of native", ours["seconds"] <= 1.02 * native["seconds"], check),
    ]
    for what, kept, _ in promises:
        print(f"  {'ok  ' if kept else 'NO  '} {what}")
    return all(kept for _, kept, counts in promises if counts)


def main() -> int:
    options = arguments()
    # Read when cuBLAS starts: deterministic workspaces, for every mode alike.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if options.mode != "all":
        if MODES[options.mode]:  # read when torch is imported
            os.environ["PYTORCH_ALLOC_CONF"] = MODES[options.mode]
        result = train(options)
        if options.json:
            print(json.dumps(result))
        else:
            print("losses:", " ".join(f"{loss:.4f}" for loss in result["losses"][:: max(1, result["steps"] // 20)]))
            show([result])
        return 0
    need("torch")
    run_one(options, "native", steps=2)  # reads the libraries from disk once, so that the first mode does not pay
    results = [run_one(options, mode) for mode in MODES]
    if options.json:
        for result in results:
            print(json.dumps(result))
    show(results)
    return 0 if judge(results, options.check) else 1


if __name__ == "__main__":
    sys.exit(main())
