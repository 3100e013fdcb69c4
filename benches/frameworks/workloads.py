"""Programs whose shapes change all the time, on each allocator: seconds, and the memory that they hold at their peak.

    python3 benches/frameworks/workloads.py --all                       every workload on every allocator, one after the other
    python3 benches/frameworks/workloads.py --all --workload text,graph  a part of them
    python3 benches/frameworks/workloads.py --workload moe --allocator forebay   one run, one JSON line

`device` is what the driver says the whole GPU has in use, read from outside every 2 ms, less what it was when the program had
its context and no memory yet; `held` is the allocator's own peak. `live` is PyTorch's count under its own allocator. With
--all the JSON lines also go to $OUT/workloads.jsonl and the tables to $OUT/workloads.md. Ends with 1 if the losses or answers
under Forebay are not those of native.
"""

import argparse
import json
import os
import random
import sys
import time

import allocators
import measured

SEED = 20261120
WORKLOADS = {
    "text": "GPT-2 medium training, sequences of 64 to 2048",
    "graph": "attention on random graphs",
    "image": "ResNet-50 training, images of 128 to 336, batches of 8 to 96",
    "serve": "1 B Llama-like model, growing caches, batches of 1 to 32",
    "moe": "mixture of experts, 1 000 to 60 000 tokens",
    "generate": "1 B Llama-like model that generates, 3 GiB live",
    "neighbours": "graph network on sampled neighbours",
    "threads": "four models that generate in four threads",
}
ALLOCATORS = ("native", "expandable", "async", "rmm-pool", "rmm-async", "forebay")


def models():
    sys.path.insert(0, str(allocators.ROOT / "examples" / "python-ctypes"))
    from mixture import Mixture
    from models import Graph, Text
    from serving import Serving
    from small import Generating, Neighbours, Threads
    from vision import Images

    return {
        "text": Text, "graph": Graph, "image": Images, "serve": Serving, "moe": Mixture,
        "generate": Generating, "neighbours": Neighbours, "threads": Threads,
    }  # fmt: skip


def stepper(torch, kind, size):
    """A function that does one step, on a small shape or on the next one, and answers a figure of its result."""
    model = kind(size, "cuda")
    rng, generator = random.Random(SEED), torch.Generator("cuda").manual_seed(SEED)
    if hasattr(model, "answer"):
        return lambda warm_up: model.answer(model.shape(rng, warm_up), generator)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(warm_up):
        adam.zero_grad(set_to_none=True)
        loss = model.loss(model.shape(rng, warm_up), generator)
        loss.backward()
        adam.step()
        return loss.detach()

    return step


def own_figures(torch, allocator):
    """The peaks as the allocator counts them; nothing for RMM, whose plug-in has no figures."""
    if allocator.startswith("rmm"):
        return {}
    figures = {"live": torch.cuda.max_memory_allocated(), "held": torch.cuda.max_memory_reserved()}
    if allocator.startswith("forebay"):
        import forebay

        figures["pool"] = forebay.Pool.shared().stats(0)._asdict()
    return figures


def work(options, mark):
    """One run. `mark` tells who measures from outside where it has come to. Nothing is synchronised but every tenth result."""
    # Read when cuBLAS starts: deterministic workspaces, for every allocator alike.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch = allocators.torch_on(options.allocator)
    # One seed, one result: no kernel may depend on the order in which atomics happen to land.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(SEED)
    torch.cuda.init()
    torch.cuda.synchronize()
    mark("context")
    kind = models()[options.workload]
    steps = options.steps or kind.STEPS[options.size]
    step = stepper(torch, kind, options.size)
    for _ in range(3):  # tiny: loads kernels and libraries, teaches the allocator nothing
        step(True)
    torch.cuda.synchronize()
    if not options.allocator.startswith("rmm"):
        torch.cuda.reset_peak_memory_stats()
    mark("start")
    before = own_figures(torch, options.allocator).get("pool")
    results, start = [], time.perf_counter()
    for number in range(steps):
        results.append(step(False))
        if number % 10 == 9:
            results[-1].item()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    mark("end")
    figures = own_figures(torch, options.allocator)
    if before:  # of this run alone, not of its warm-up
        figures["pool"].update({key: figures["pool"][key] - before[key] for key in ("making_ns", "waiting_ns")})
    return {
        "bench": f"workload {options.workload}", "allocator": options.allocator, "steps": steps, "seconds": seconds,
        **figures, "results": [result.item() for result in results],
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every named workload on every named allocator")
    parser.add_argument("--workload", default="", help=f"one, or with --all several with commas: {', '.join(WORKLOADS)}")
    parser.add_argument("--allocator", default="", help=f"likewise: {', '.join(ALLOCATORS)}; also forebay-base, bare")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--steps", type=int, help="default: the workload's own, about ten seconds on an H200")
    parser.add_argument("--seconds", type=float, default=500, help="with --all: start no run after so long (%(default)s)")
    parser.add_argument("--interval", type=float, default=2, help="ms between two readings from outside (%(default)s)")
    parser.add_argument("--marked", action="store_true", help=argparse.SUPPRESS)  # somebody measures from outside
    options = parser.parse_args()
    for name, known in (("workload", WORKLOADS), ("allocator", allocators.NAMES)):
        given = [word for word in getattr(options, name).split(",") if word]
        if unknown := set(given) - set(known):
            parser.error(f"unknown {name}: {', '.join(unknown)}; there are {', '.join(known)}")
        if not options.all and len(given) != 1:
            parser.error(f"give one --{name}, or --all")
        setattr(options, f"{name}s", given)
    if options.all:
        return measured.matrix(options, options.workloads or list(WORKLOADS), options.allocators or list(ALLOCATORS), WORKLOADS)
    if options.marked:
        print(json.dumps(work(options, measured.tell)), flush=True)
        # Ends without taking anything down: RMM's pool may be gone before PyTorch's last tensor.
        os._exit(0)
    print(json.dumps(measured.run(options, options.workload, options.allocator)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
