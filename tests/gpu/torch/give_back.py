"""Idle memory goes back by itself where that is asked for: after bursts and not between them, around captures, at the end of the process."""

import os
import subprocess
import sys
import time

IDLE = 0.4

if "--often" not in sys.argv:
    os.environ["FOREBAY_GIVE_BACK_MS"] = str(round(IDLE * 1000))

from common import GIB, MIB, close, finish, install, must

torch = install()


def burst(weights):
    """A few GiB for a moment; its last value."""
    x = weights[0, :1024].repeat(1024, 1)
    for row in weights:
        y = torch.stack([x * row[: x.shape[1]]] * 256)
        x = y.mean(dim=0)
    return x.sum().item()


def seconds(work) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def wait_until(holds) -> float:
    begun = time.monotonic()
    while not holds() and time.monotonic() - begun < 30:
        time.sleep(0.01)
    return time.monotonic() - begun


def bursts() -> None:
    weights = torch.rand(4, GIB // 16, device="cuda")
    expected = burst(weights)
    busy, live = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    must(busy >= live + 2 * GIB, f"a burst needs {(busy - live) >> 20} MiB beside the {live >> 20} MiB of the weights")

    times = [seconds(lambda: burst(weights))]
    while sum(times) < 4 * IDLE:
        times.append(seconds(lambda: burst(weights)))
    must(torch.cuda.memory_reserved() == busy, f"all of it stays through {len(times)} bursts without a pause")

    before = torch.cuda.mem_get_info()[0]
    took = wait_until(lambda: torch.cuda.memory_reserved() <= live + live // 8)
    must(took < 30, f"{(busy - torch.cuda.memory_reserved()) >> 20} MiB are back {took:.2f} s after the last")
    must(torch.cuda.mem_get_info()[0] - before >= busy - live - live // 8 - 64 * MIB, "and the device has them")
    first = seconds(lambda: must(close([burst(weights)], [expected]), "the next burst has the same result"))
    usual = sorted(times)[len(times) // 2]
    print(f"  a burst takes {usual * 1e3:.1f} ms, after a pause {first * 1e3:.1f} ms", flush=True)


def often() -> None:
    """The thread looks every millisecond, beside captures and several streams."""
    weights = torch.rand(64, 1 << 18, device="cuda")
    side = torch.cuda.Stream()
    expected = (weights * 2 + 1).sum().item()
    right, graphs = 0, []
    for turn in range(300):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = (weights * 2 + 1).sum()
        # Used and idle by turns, on two streams.
        with torch.cuda.stream(side):
            other = torch.full(((1 + turn % 40) * MIB,), turn, dtype=torch.int32, device="cuda")
            total = other[:: other.numel() // 8].sum()
        graph.replay()
        right += close([held.item()], [expected]) and total.item() == turn * other[:: other.numel() // 8].numel()
        del other
        if turn % 20 == 0:
            graphs.append((graph, held))
        time.sleep(0.002 * (turn % 3))
    must(right == 300, f"{right} of 300 captures and their replays have the right result")
    for graph, held in graphs:
        held.zero_()
        graph.replay()
    must(all(close([held.item()], [expected]) for _, held in graphs), "graphs that were kept replay to the same")


if "--often" in sys.argv:
    often()
else:
    bursts()
    environment = dict(os.environ, FOREBAY_GIVE_BACK_MS="4")
    done = subprocess.run([sys.executable, os.path.abspath(sys.argv[0]), "--often"], env=environment)
    must(done.returncode == 0, "looked at every millisecond, too")
finish()
