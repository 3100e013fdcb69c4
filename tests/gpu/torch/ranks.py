"""One rank of distributed.py: ``ranks.py native|expandable|forebay FOLDER SCENARIO ...``.

RANK, the rendezvous and PyTorch's settings are in the environment. Leaves FOLDER/SCENARIO.RANK.json for each scenario; the
first failure ends the process, since the other rank waits.
"""

import datetime
import gc
import json
import os
import random
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from common import MIB, ROOT

sys.path.insert(0, str(ROOT / "examples" / "python-ctypes"))
import models  # noqa: E402  (is found there)

ALLOCATOR, FOLDER, *WANTED = sys.argv[1:]
RANK = int(os.environ["RANK"])
OTHER = 1 - RANK
SEED, STEPS = 20261120, 60

DEVICE = torch.device("cuda", RANK)


class Model(models.Text):
    """The example's text model, called as a module: that is where the wrappers' hooks are."""

    forward = models.Text.loss


def used():
    """Bytes of this rank's device that the driver says are taken."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def train(wrap):
    """Each rank has shapes and data of its own; nothing is synchronised but every tenth loss."""
    gc.collect()
    torch.cuda.empty_cache()
    dist.barrier()
    before = used()
    torch.manual_seed(SEED)
    kind = wrap(Model("small", DEVICE))
    adam = torch.optim.Adam(kind.parameters(), lr=1e-4)
    rng, generator = random.Random(SEED + RANK), torch.Generator(DEVICE).manual_seed(SEED + RANK)
    shape = Model.shape
    plan = kind if hasattr(kind, "plan") else kind.module

    def step(warm_up):
        adam.zero_grad(set_to_none=True)
        loss = kind(shape(plan, rng, warm_up), generator)
        loss.backward()
        adam.step()
        return loss.detach()

    for _ in range(3):
        step(True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    counted = pool_counts()
    losses, device, started = [], 0, time.perf_counter()
    marks = [started]
    for number in range(STEPS):
        losses.append(step(False))
        device = max(device, used() - before)
        if number % 10 == 9:
            losses[-1].item()
            marks.append(time.perf_counter())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds, "tens": [round(end - start, 3) for start, end in zip(marks, marks[1:])],
        "live": torch.cuda.max_memory_allocated(), "held": torch.cuda.max_memory_reserved(),
        "device": max(device, used() - before), "losses": [loss.item() for loss in losses],
        "pool": {name: count - counted[name] for name, count in pool_counts().items()},
    }  # fmt: skip


def pool_counts():
    """What Forebay's pool of this rank's device has done so far."""
    if ALLOCATOR != "forebay":
        return {}
    import forebay

    stats = forebay.Pool.shared().stats(RANK)
    return {name: getattr(stats, name) for name in ("growths", "steals", "waits", "releases")}


def ddp():
    return train(lambda model: torch.nn.parallel.DistributedDataParallel(model))


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    def wrap(model):
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        return model

    return train(wrap)


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({models.Layer})
    return train(lambda model: FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=DEVICE, use_orig_params=True))


def sizes(rounds):
    """The same numbers of elements on both ranks: 512 bytes to 64 MiB of floats."""
    draw = random.Random(SEED)
    return [int(2 ** draw.uniform(7, 24)) for _ in range(rounds)]


def pattern(count, value):
    return torch.arange(count, dtype=torch.float32, device=DEVICE).remainder_(8191).add_(value)


def messages():
    """Sends and receives, the memory sent from taken and written by others as soon as PyTorch lets go of it."""
    wrong = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for number, count in enumerate(sizes(60)):
        mine = pattern(count, 1000.0 * RANK + number)
        theirs = torch.full((count,), -2.0, device=DEVICE)
        if number % 3 == 0:
            pair = [dist.P2POp(dist.isend, mine, OTHER), dist.P2POp(dist.irecv, theirs, OTHER)]
            for work in dist.batch_isend_irecv(pair):
                work.wait()
        elif number % 3 == 1:
            for sender in (0, 1):
                if sender == RANK:
                    dist.send(mine, OTHER)
                else:
                    dist.recv(theirs, OTHER)
        else:
            works = []
            for sender in (0, 1):
                works.append(dist.isend(mine, OTHER) if sender == RANK else dist.irecv(theirs, OTHER))
            del mine  # the work holds it
            for work in works:
                work.wait()
            del works, work
        mine = torch.full((count,), -1.0, device=DEVICE)
        wrong += (theirs != pattern(count, 1000.0 * OTHER + number)).sum()
        del mine, theirs
    return {"wrong": int(wrong), "what": "60 messages each way, 512 B to 64 MiB"}


def streams():
    """Collectives on a side stream, results used on a third one behind record_stream, and the memory wanted again at once."""
    side, reader = torch.cuda.Stream(), torch.cuda.Stream()
    wrong = 0
    for number, count in enumerate(sizes(50)):
        with torch.cuda.stream(side):
            x = torch.full((count,), float(number + RANK), device=DEVICE)
            dist.all_reduce(x, async_op=True).wait()
        reader.wait_stream(side)
        with torch.cuda.stream(reader):
            torch.cuda._sleep(1_000_000)
            copy = x.clone()
        x.record_stream(reader)
        del x
        with torch.cuda.stream(side):
            junk = torch.full((count,), -1.0, device=DEVICE)
        reader.synchronize()
        wrong += int((copy != 2.0 * number + 1).sum())
        del copy, junk
        # The input is dropped, and its memory written over, while the collective is still to run.
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            mine = torch.full((count,), float(number + RANK), device=DEVICE)
            both = torch.empty(2 * count, device=DEVICE)
            work = dist.all_gather_into_tensor(both, mine, async_op=True)
            del mine
            junk = torch.full((count,), -1.0, device=DEVICE)
            work.wait()
            half = torch.empty(count, device=DEVICE)
            dist.reduce_scatter_tensor(half, both)
            swapped = torch.empty(2 * count, device=DEVICE)
            dist.all_to_all_single(swapped, both)
            dist.broadcast(junk, 0)
            sums = [(both[:count] != number).sum(), (both[count:] != number + 1).sum(), (half != 2.0 * (number + RANK)).sum(),
                    (swapped != float(number + RANK)).sum(), (junk != -1.0).sum()]  # fmt: skip
            wrong += sum(int(each) for each in sums)
            del both, half, swapped, junk, work, sums
    return {"wrong": wrong, "what": "50 rounds of six collectives on a side stream"}


def graph():
    """Collectives in captured graphs, of sizes on both sides of the pool's chunks. Under native NCCL maps the other rank's buffers
    by itself (NCCL_GRAPH_REGISTER), which Forebay's install forbids."""
    wrong = sum(captured(count) for count in (16 * MIB, MIB, MIB // 16))
    return {"wrong": wrong, "what": "10 replays of three graphs with three collectives, 64 MiB, 4 MiB and 256 KiB"}


def captured(n):
    """How many values are wrong after replays of a graph with collectives of so many floats."""
    x = torch.zeros(n, device=DEVICE)
    side = torch.cuda.Stream()

    def work():
        y = x * 2
        dist.all_reduce(y)
        both = torch.empty(2 * n, device=DEVICE)
        dist.all_gather_into_tensor(both, y + RANK)
        theirs = torch.empty_like(y)
        pair = [dist.P2POp(dist.isend, y + 10 * RANK, OTHER), dist.P2POp(dist.irecv, theirs, OTHER)]
        for each in dist.batch_isend_irecv(pair):
            each.wait()
        return y + 1, both, theirs

    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    made, wrong = torch.cuda.CUDAGraph(), 0
    with torch.cuda.graph(made, capture_error_mode="thread_local"):
        z, both, theirs = work()
    noise = [torch.full((MIB,), 9.0, device=DEVICE) for _ in range(64)]
    for number in range(10):
        x.fill_(float(number + RANK))
        made.replay()
        total = 2.0 * (2 * number + 1)
        for tensor, value in ((z, total + 1), (both[:n], total), (both[n:], total + 1), (theirs, total + 10 * OTHER)):
            wrong += int((tensor != value).sum())
    wrong += sum(int((each != 9.0).sum()) for each in noise)
    torch.cuda.synchronize()
    made.reset()
    return wrong


def registered(pool, backend):
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((16 * MIB,), 1.0, device=DEVICE)
    backend.register_mem_pool(pool)
    for _ in range(4):
        dist.all_reduce(x)
    wrong = int((x != 16.0).sum())
    backend.deregister_mem_pool(pool)
    return {"wrong": wrong, "what": "4 all-reduces of 64 MiB registered with NCCL"}


def own_pool():
    """A MemPool of the allocator's own memory, registered with NCCL."""
    return registered(torch.cuda.MemPool(), dist.group.WORLD._get_backend(DEVICE))


def nccl_pool():
    """A MemPool of NCCL's memory, registered with NCCL."""
    backend = dist.group.WORLD._get_backend(DEVICE)
    return registered(torch.cuda.MemPool(backend.mem_allocator), backend)


SCENARIOS = {each.__name__: each for each in (ddp, fsdp2, fsdp1, messages, streams, graph, own_pool, nccl_pool)}


def main():
    if ALLOCATOR == "forebay":
        import forebay

        print(f"rank {RANK}: {forebay.torch.install().mode} mode", flush=True)
    # One seed, one result.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl", device_id=DEVICE, timeout=datetime.timedelta(seconds=40))
    for name in WANTED:
        started = time.perf_counter()
        try:
            result = SCENARIOS[name]()
        except BaseException as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        result["took"] = time.perf_counter() - started
        # Renamed into place: who reads it sees all of it.
        place = Path(FOLDER) / f"{name}.{RANK}.json"
        place.with_suffix(".part").write_text(json.dumps(result))
        place.with_suffix(".part").rename(place)
        print(f"rank {RANK}: {name} {result['took']:.1f} s", flush=True)
        if "error" in result:
            os._exit(1)  # NCCL's own end would wait for the other rank
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
