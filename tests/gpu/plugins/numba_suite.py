"""Numba's own tests of memory, or others, under the plug-in and under Numba's own manager: the outcomes side by side.

    python3 tests/gpu/plugins/numba_suite.py                      # the tests of the driver layer, of IPC and of arrays
    python3 tests/gpu/plugins/numba_suite.py numba.cuda.tests     # everything: long
"""

import os
import re
import subprocess
import sys
import tempfile

from common import forebay

DEFAULT = ["numba.cuda.tests.cudadrv", "numba.cuda.tests.cudapy.test_ipc", "numba.cuda.tests.cudapy.test_cuda_array_interface"]
#: Seconds for one manager's run. Everything takes longer.
LIMIT = int(os.environ.get("NUMBA_SUITE_SECONDS", "280"))
#: Tests that fail with any pool that cuts its memory, by the ends of their names, and why.
RANGE = "sets as much memory as `cuMemGetAddressRange` names, from the array on: in a pool that is the whole mapping the array lies in"
NOT_OURS = {
    "TestHostAlloc.test_host_alloc_mapped": RANGE,
    "TestHostAlloc.test_host_alloc_pinned": RANGE,
    "TestIpcMemory.test_ipc_handle": "hands the driver's own 64 bytes of IPC to another process, which pool memory does not have",
}
MANAGERS = {"own": "default", "forebay": "forebay.numba"}
SHIM = "import numpy\nif not hasattr(numpy, 'row_stack'): numpy.row_stack = numpy.vstack\n"
# Not through `unittest discover`: a module that cannot be imported is one failure and not the end.
RUN = """
import importlib, pkgutil, sys, unittest
names = []
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    found = [name]
    for part in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        found.append(part.name)
    names += [name for name in found if name.rpartition(".")[2].startswith("test")]
unittest.main(module=None, argv=["unittest", "-v", *names])
"""


def outcomes(manager, modules):
    """The outcome of each test by its name."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
            file.write(SHIM)
        package = os.path.dirname(os.path.dirname(forebay.__file__))
        paths = os.pathsep.join([folder, package, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_CUDA_MEMORY_MANAGER": manager}
        command = [sys.executable, "-X", "faulthandler", "-c", RUN, *modules]
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT)
            text, end = done.stdout.decode(errors="replace"), f"no summary, exit {done.returncode}"
        except subprocess.TimeoutExpired as error:
            text, end = (error.stdout or b"").decode(errors="replace"), f"no end within {LIMIT} s"
    line = r"^(\w+ \([\w.]+\))(?:\n[^\n]*)??\s*\.\.\. .*?\b(ok|FAIL|ERROR|skipped|expected failure)\b"
    found = re.findall(line, text, re.M)
    summary = re.findall(r"^Ran \d+ tests.*|^(?:OK|FAILED).*$", text, re.M)
    return dict(found), " ".join(summary) or end, text


def main():
    modules = sys.argv[1:] or DEFAULT
    results, said = {}, {}
    for who, manager in MANAGERS.items():
        results[who], summary, text = outcomes(manager, modules)
        said[who] = text
        print(f"{who}: {summary}")
        if out := os.environ.get("OUT"):
            with open(os.path.join(out, f"numba_suite_{who}.log"), "w") as file:
                file.write(text)
    own, ours = results["own"], results["forebay"]
    for test in sorted({*own, *ours}):
        if own.get(test) != ours.get(test):
            print(f"  {test}: own {own.get(test)}, forebay {ours.get(test)}")
    lost = [test for test, outcome in own.items() if outcome == "ok" and ours.get(test) not in ("ok", "skipped")]
    known = {test: why for test in lost for name, why in NOT_OURS.items() if test.endswith(f".{name})")}
    worse = [test for test in lost if test not in known]
    for test, why in known.items():
        print(f"  not ours: {test}: {why}")
    count = {who: sum(outcome == "ok" for outcome in result.values()) for who, result in results.items()}
    print(f"pass with Numba's own: {count['own']}, with forebay: {count['forebay']}; there and not here: {len(lost)}, {len(worse)} WORSE")
    if not count["own"]:
        print(f"nothing passes with Numba's own manager, so nothing was shown:\n{said['own'][-2000:]}")
    return bool(worse) or not count["own"]


if __name__ == "__main__":
    sys.exit(main())
