"""Runs of workloads.py in processes of their own, with the device's memory read from outside, and the tables made of them."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import allocators

HERE = Path(__file__).parent
MIB = 1 << 20
LIMIT_SECONDS = 150


def tell(mark):
    """In the program that is measured: says where it is, and waits until that was noted."""
    print(f"mark {mark}", flush=True)
    sys.stdin.readline()


class Device:
    """The memory of the first visible GPU that is in use, by anybody, and the most of it since `reset`. One thread reads."""

    def __init__(self, interval_ms):
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        if visible and not visible.isdigit():
            handle = pynvml.nvmlDeviceGetHandleByUUID(visible)
        else:
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(visible or 0))
        self.used = lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used
        self.interval, self.peak, self.going, self.lock = interval_ms / 1000, 0, True, threading.Lock()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while self.going:
            with self.lock:
                self.peak = max(self.peak, self.used())
            time.sleep(self.interval)

    def reset(self):
        with self.lock:
            self.peak = self.used()


def device_or_none(interval_ms):
    try:
        return Device(interval_ms)
    except Exception as error:  # whatever NVML or its absence says
        print(f"no figures from outside: {type(error).__name__}: {error}", flush=True)
        return None


def run(options, workload, allocator, steps=None, device=None):
    """One run's figures, or {"error": why}. `device` bytes are those from outside."""
    device = device or device_or_none(options.interval)
    command = [sys.executable, str(HERE / "workloads.py"), "--marked", "--workload", workload, "--allocator", allocator]
    command += ["--size", options.size]
    if steps or options.steps:
        command += ["--steps", str(steps or options.steps)]
    marks, result, last = {}, None, ""
    with tempfile.TemporaryFile("w+") as errors:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
        child = subprocess.Popen(command, env=allocators.environment(allocator), **pipes)
        clock = threading.Timer(LIMIT_SECONDS, child.kill)
        clock.start()
        try:
            for line in child.stdout:
                if line.startswith("mark "):
                    name = line.split()[1]
                    if device and name == "end":
                        marks["peak"] = max(device.peak, device.used())
                    elif device:
                        device.reset()
                        marks[name] = device.peak
                    child.stdin.write("\n")
                    child.stdin.flush()
                elif line.startswith("{"):
                    result = json.loads(line)
        except OSError:  # the child is gone: its exit says why
            pass
        code = child.wait()
        clock.cancel()
        errors.seek(0)
        last = (errors.read().strip().splitlines() or [f"ended with {code}"])[-1][:200]
    if result is None:
        late = code < 0 and f", perhaps over {LIMIT_SECONDS} s" or ""
        return {"bench": f"workload {workload}", "allocator": allocator, "error": f"{last} (exit {code}{late})"}
    if "peak" in marks:
        result["device"] = marks["peak"] - marks["context"]
    return result


def matrix(options, workloads, names, titles):
    """Every workload on every allocator in turn. Each result is written down as soon as it is there."""
    begun, device, good = time.monotonic(), device_or_none(options.interval), True
    out = os.environ.get("OUT")
    for workload in workloads:
        answers = []
        # Reads the libraries from disk once, so that the first allocator does not pay.
        warm = run(options, workload, "native", steps=2, device=device)
        print(f"-- {workload}: warm-up {warm.get('error', 'done')}, {time.monotonic() - begun:.0f} s in all", flush=True)
        for name in names:
            if time.monotonic() - begun > options.seconds:
                answers.append({"bench": f"workload {workload}", "allocator": name, "error": "no time was left for it"})
                continue
            started = time.monotonic()
            answers.append(run(options, workload, name, device=device))
            print(f"   {name}: {answers[-1].get('error', 'done')}, {time.monotonic() - started:.0f} s", flush=True)
            line = json.dumps(answers[-1])
            if out:
                with open(Path(out) / "workloads.jsonl", "a") as file:
                    file.write(line + "\n")
        lines, fine = table(workload, titles[workload], answers)
        good = good and fine
        print("\n".join(lines), flush=True)
        if out:
            with open(Path(out) / "workloads.md", "a") as file:
                file.write("\n".join(lines) + "\n")
    if device:
        device.going = False
    return 0 if good else 1


def compared(ours, theirs):
    """Whether two lists of results agree, and in what words."""
    if ours == theirs:
        return True, "to the last bit"
    if len(ours) != len(theirs):
        return False, f"{len(ours)} results, not {len(theirs)}"
    worst = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours, theirs))
    return worst <= 1e-3, f"within {worst:.1e}"


def table(workload, title, answers):
    """The lines of a Markdown table, and whether Forebay's results are native's."""
    by = {answer["allocator"]: answer for answer in answers}
    native = by.get("native", {})
    live, good = native.get("live"), True
    lines = ["", f"{workload}: {title}; {native.get('steps', '?')} steps.", ""]
    lines += ["| allocator | seconds | live MiB | held MiB | held/live | device MiB | device/live | results |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name, answer in by.items():
        if "error" in answer:
            good = good and not name.startswith("forebay")
            lines.append(f"| {name} | {answer['error']} | | | | | | |")
            continue
        same, words = compared(answer["results"], native["results"]) if "results" in native else (True, "")
        good = good and (same or not name.startswith("forebay"))
        cells = [name, f"{answer['seconds']:.2f}", mib(answer.get("live"))]
        for key in ("held", "device"):
            cells += [mib(answer.get(key)), f"{answer[key] / live:.4f}" if live and answer.get(key) else ""]
        lines.append(f"| {' | '.join([*cells, words if same else f'NOT native: {words}'])} |")
    for name, answer in by.items():
        if pool := answer.get("pool"):
            counts = ", ".join(f"{pool[key]} {key}" for key in ("growths", "steals", "releases", "waits", "hits", "misses"))
            shares = [f"{100 * pool[key] / 1e9 / answer['seconds']:.2f} % of the time {what}" for key, what in
                      (("making_ns", "making room (driver calls included)"), ("waiting_ns", "waiting"))]  # fmt: skip
            lines += ["", f"{name}: {counts} since the process began; {', '.join(shares)}."]
    if native.get("seconds"):
        over = [f"{name} {answer['seconds'] / native['seconds']:.3f}" for name, answer in by.items() if "seconds" in answer]
        lines += ["", f"Seconds over native's: {', '.join(over)}."]
    return lines, good


def mib(size):
    return f"{size / MIB:,.0f}".replace(",", " ") if size else ""
