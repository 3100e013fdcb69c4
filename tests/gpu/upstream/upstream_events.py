"""A plug-in of pytest: each test's start and end as a JSON line in $UPSTREAM_EVENTS, written before anything can crash.

Runs the tests that $UPSTREAM_WANTED lists, a JSON file, in its order: on the command line pytest would not take names with
brackets in them. After a failure that CUDA does not recover from, the process ends: the tests after it deserve a fresh one.
"""

import json
import os
from pathlib import Path

import pytest

_file = open(os.environ["UPSTREAM_EVENTS"], "a")
_CUDA = ("CUDA error", "AcceleratorError", "cudaError", "CUDARuntimeError", "CUDA_ERROR")
_reports = {}


def _tell(**event):
    _file.write(json.dumps(event) + "\n")
    _file.flush()


def pytest_collection_modifyitems(config, items):
    if wanted := os.environ.get("UPSTREAM_WANTED"):
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in json.loads(Path(wanted).read_text()) if name in found]


def pytest_collection_finish(session):
    if session.config.option.collectonly:
        for item in session.items:
            _tell(item=item.nodeid, marks=sorted({mark.name for mark in item.iter_markers()}))


def pytest_runtest_logstart(nodeid, location):
    _reports.pop(nodeid, None)
    _tell(start=nodeid)


def pytest_runtest_logreport(report):
    text = ""
    if report.failed:
        outcome = "failed" if report.when == "call" else f"error in {report.when}"
        text = str(report.longrepr)
    elif report.skipped:
        outcome = "expected failure" if hasattr(report, "wasxfail") else "skipped"
    else:
        outcome = "passed"
    before = _reports.get(report.nodeid)
    if before is None or before[0] == "passed":
        _reports[report.nodeid] = (outcome, text)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish(nodeid, location):
    outcome, text = _reports.get(nodeid, ("no report", ""))
    _tell(end=nodeid, outcome=outcome, line=last_line(text), text=text[-4000:])
    if any(word in text for word in _CUDA) and _broken():
        _tell(broken=nodeid)
        os._exit(70)


def last_line(text):
    """What went wrong, in one line: the last one that names an exception, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    named = [line for line in marked if ": " in line and line.split(":")[0].replace(".", "").isidentifier()]
    return ((named or marked or lines or [""])[-1])[:300]


def _broken():
    """Whether this process can use CUDA no longer."""
    import sys

    try:
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.synchronize()
        if "cupy" in sys.modules:
            sys.modules["cupy"].cuda.runtime.deviceSynchronize()
    except Exception:
        return True
    return False
