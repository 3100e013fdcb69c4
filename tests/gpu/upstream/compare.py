"""Runs a framework's own tests under its own allocator and under Forebay, and tells where the outcomes differ.

pytest runs them in child processes. A crash, a hang or a broken context costs one test: the rest is run by a new process. What
fails under Forebay alone is run once more, alone, before it counts, and under a debugger if it crashed. The log has the whole
text of what failed under Forebay alone.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
START = 150  # Seconds that a process may take to its first test.
OUT_OF_TIME = ("not run", "out of time")
GOOD = ("passed", "skipped", "expected failure")
STACKS = 2  # Crashes that are shown with their native stack.


class Suite:
    def __init__(self, framework, folder, *, paths=(), limit=60, seconds=300, variables=None):
        self.framework, self.folder, self.limit = framework, Path(folder).resolve(), limit
        self.deadline = time.monotonic() + seconds
        self.scratch = Path(tempfile.mkdtemp(prefix=f"{framework}_suite."))
        self.ini = self.scratch / "pytest.ini"
        self.ini.write_text("[pytest]\n")
        self.paths = [HERE, ROOT / "python", *(Path(path).resolve() for path in paths)]
        self.variables = dict(variables or {})
        if library := os.environ.get("FOREBAY_LIBRARY"):
            self.variables["FOREBAY_LIBRARY"] = os.path.abspath(library)
        out = Path(os.environ["OUT"]) if os.environ.get("OUT") else self.scratch
        self.log = open(out / f"{framework}_suite.log", "w")
        self.lock = threading.Lock()
        self.count = 0
        self.texts = {}

    def _child(self, side, arguments, tests=None, before=()):
        """A process of pytest's, its file of events, its output. `before` is what its command begins with."""
        with self.lock:
            self.count += 1
            number = self.count
        events, output = self.scratch / f"{number}.events", self.scratch / f"{number}.log"
        events.touch()
        wanted = {}
        if tests is not None:
            listed = self.scratch / f"{number}.tests"
            listed.write_text(json.dumps(tests))
            wanted["UPSTREAM_WANTED"] = str(listed)
            arguments = dict.fromkeys(test.split("::")[0] for test in tests)
        work = self.scratch / f"work{number}"
        work.mkdir()
        paths = os.pathsep.join(map(str, [*self.paths, *filter(None, [os.environ.get("PYTHONPATH")])]))
        environment = {
            **os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2", "MAX_JOBS": "2",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TORCH_EXTENSIONS_DIR": str(work), "UPSTREAM_EVENTS": str(events), "UPSTREAM_SIDE": side,
            "UPSTREAM_FRAMEWORK": self.framework, **self.variables, **wanted,
        }  # fmt: skip
        command = [
            *before, sys.executable, "-X", "faulthandler", "-m", "pytest", "-q",
            "-p", "no:cacheprovider", "-p", "upstream_events", "-p", "under_forebay",
            "-c", str(self.ini), "--rootdir", str(self.folder), "--tb=short", *arguments,
        ]  # fmt: skip
        child = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=open(output, "wb"),
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        return child, events, output

    def _keep(self, title, output):
        with self.lock:
            self.log.write(f"\n######## {title}\n{output.read_text(errors='replace')[-400_000:]}\n")
            self.log.flush()

    def collect(self, files, side="own"):
        """The tests, in order: name and marks."""
        child, events, output = self._child(side, ["--collect-only", *files])
        try:
            child.wait(START)
        except subprocess.TimeoutExpired:
            _kill(child)
        self._keep(f"{side}: collecting", output)
        found = {event["item"]: event["marks"] for event in _read(events)}
        if not found:
            print(output.read_text(errors="replace")[-3000:])
        return found

    def run(self, side, tests):
        """The outcome of each test and a line that explains it."""
        results, left = {}, list(tests)
        while left:
            if time.monotonic() > self.deadline:
                results.update(dict.fromkeys(left, OUT_OF_TIME))
                break
            child, events, output = self._child(side, [], left)
            current, done, code = self._watch(child, events)
            for event in _read(events):
                if event.get("text") and event["outcome"] not in GOOD:
                    self.texts[side, event["end"]] = event["text"]
            self._keep(f"{side}: {len(left)} tests from {left[0]}; exit {code}", output)
            results.update(done)
            if current is not None and code == OUT_OF_TIME[1]:
                results[current] = OUT_OF_TIME
            elif current is not None:
                results[current] = (code if isinstance(code, str) else f"crashed, exit {code}", _tail(output))
            fresh = [test for test in left if test not in results]
            if len(fresh) == len(left):
                results.update((test, ("not run", f"exit {code}: {_tail(output)}")) for test in left)
                break
            left = fresh
        return results

    def _watch(self, child, events):
        """Waits for the end, or ends what does not move: the test under way, the outcomes, the exit status."""
        seen, moved = 0, time.monotonic()
        code = None
        while code is None:
            code = child.poll()
            size = events.stat().st_size
            if size != seen:
                seen, moved = size, time.monotonic()
            patience = self.limit if seen else START
            late = time.monotonic() > self.deadline + self.limit
            if code is None and (late or time.monotonic() - moved > patience):
                _kill(child)
                code = OUT_OF_TIME[1] if late else f"no end within {patience} s"
            time.sleep(0.1)
        if not isinstance(code, str):
            _kill(child)  # What it may have left behind in its session.
        current, done = None, {}
        for event in _read(events):
            if "start" in event:
                current = event["start"]
            elif "end" in event:
                current, done[event["end"]] = None, (event["outcome"], event["line"])
        return current, done, code

    def _stack(self, side, test):
        """The native stack of a test that crashes, as the debugger on this machine tells it."""
        debugger = shutil.which("gdb") or shutil.which("cuda-gdb")
        if debugger is None:
            return ["there is no gdb and no cuda-gdb"]
        steps = [word for step in ("set pagination off", "run", "bt 30") for word in ("-ex", step)]
        child, _, output = self._child(side, [], [test], [debugger, "-nx", "-batch", *steps, "--args"])
        try:
            child.wait(START)
        except subprocess.TimeoutExpired:
            pass
        _kill(child)
        self._keep(f"{side}: stack of {test}", output)
        lines = output.read_text(errors="replace").splitlines()
        return [line[:200] for line in lines if re.match(r"#\d+ |.*received signal", line)] or lines[-5:]

    def side_by_side(self, sides, shards, workers):
        """Every shard on every side, so many processes at once: the outcomes by side."""
        results = {side: {} for side in sides}
        with ThreadPoolExecutor(workers) as pool:
            under_way = [(side, pool.submit(self.run, side, shard)) for shard in shards for side in sides if shard]
            for side, one in under_way:
                results[side].update(one.result())
        return results

    def judge(self, results, sides, not_ours, workers=6):
        """Prints what differs. The number of tests that are worse under one of `sides` than under ``own``."""
        worse = 0
        for side in sides:
            ours = results[side]
            own = {test: outcome for test, outcome in results["own"].items() if test in ours}
            suspect = [test for test, (outcome, _) in own.items() if outcome == "passed" and not self._good(ours, test)]
            # Where everything fails, some say why.
            again = [test for test in suspect if _reason(test, not_ours) is None][:48]
            twice = self.side_by_side(["own", side], [[test] for test in again], workers) if again else {"own": {}, side: {}}
            groups = {"not ours": [], "passes alone": [], "fails alone with both": [], "not run": [], "WORSE": []}
            for test in suspect:
                reason = _reason(test, not_ours)
                outcome, line = twice[side].get(test, ours.get(test, ("not run", "")))
                if outcome == "not run":
                    outcome, line = ours.get(test, ("not run", ""))
                if reason is not None:
                    groups["not ours"].append(f"{test}: {reason} [{outcome}: {line}]")
                elif (outcome, line) == OUT_OF_TIME:
                    groups["not run"].append(test)
                elif outcome == "passed":
                    groups["passes alone"].append(f"{test}; before: {ours[test][0]}, {ours[test][1]}")
                elif twice["own"].get(test, ("passed",))[0] not in (*GOOD, "not run"):
                    groups["fails alone with both"].append(test)
                else:
                    groups["WORSE"].append(f"{test}: {outcome}: {line}")
            better = [
                test for test, (outcome, _) in own.items() if outcome not in (*GOOD, "not run") and self._passed(ours, test)
            ]
            print(f"\n{side}: of {len(own)} tests,")
            both = sum(outcome == "passed" and self._passed(ours, test) for test, (outcome, _) in own.items())
            print(f"  {both} pass with both. Its own allocator: {_sum(own)}. With {side}: {_sum(ours)}")
            for group, tests in groups.items():
                for text in tests:
                    print(f"  {group}: {text}")
            if better:
                print(f"  pass with {side} alone: {', '.join(better)}")
            crashed = [test for test in again if twice[side].get(test, ("",))[0].startswith("crashed, exit -")]
            for test in crashed[:STACKS]:
                print(f"  stack of {test}:", *self._stack(side, test), sep="\n    ")
            for test in suspect:
                self.log.write(f"\n######## {side}: {test}\n{self.texts.get((side, test), '')}\n")
            passed = {_name(test) for test in own if self._passed(ours, test)} - {_name(test) for test in suspect}
            if needless := sorted(passed & set(not_ours)):
                print(f"  said to be not ours, and pass: {', '.join(needless)}")
            worse += len(groups["WORSE"])
            if not any(outcome == "passed" for outcome, _ in ours.values()):
                print(f"  nothing was run with {side}, or nothing passes: that shows nothing")
                worse += 1
            print(f"  {', '.join(f'{len(tests)} {group}' for group, tests in groups.items())}", flush=True)
        if not any(outcome == "passed" for outcome, _ in results["own"].values()):
            print("nothing passes with its own allocator: is there a GPU?")
            worse += 1
        failing = [f"{test}: {outcome}: {line}" for test, (outcome, line) in results["own"].items() if outcome not in GOOD]
        self.log.write("\n######## fail with its own allocator\n" + "\n".join(failing) + "\n")
        self.log.flush()
        print(f"{len(failing)} fail or were not run with its own allocator and say nothing of Forebay: see the log")
        return worse

    @staticmethod
    def _good(results, test):
        return results.get(test, ("not run",))[0] in GOOD

    @staticmethod
    def _passed(results, test):
        return results.get(test, ("not run",))[0] == "passed"


def _sum(results):
    counts = {}
    for outcome, _ in results.values():
        counts[outcome.split(",")[0]] = counts.get(outcome.split(",")[0], 0) + 1
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items(), key=lambda pair: -pair[1]))


def _name(test):
    """Without its file and parameters, in the ways of pytest and of CuPy."""
    return re.sub(r"_param_\d+_\{.*\}(?=::)", "", test.split("::", 1)[-1]).split("[")[0]


def _reason(test, not_ours):
    return not_ours.get(_name(test))


def _read(events):
    found = []
    for line in events.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # Cut off by a kill.
    return found


def _tail(output):
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("Fatal Python error", "terminate called", "  what()", "E  "))]
    return ((marked or lines or ["no output"])[-1])[:300]


def _kill(child):
    """The process and what it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def split(tests, count):
    """So many runs of about the same length, in order."""
    size = max(1, -(-len(tests) // count))
    return [tests[at : at + size] for at in range(0, len(tests), size)]
