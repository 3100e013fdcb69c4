"""CuPy's own tests under Forebay and under CuPy's own pool: the outcomes side by side. They are in CuPy's source, not in its
wheel; pytest runs them.

    python3 tests/gpu/plugins/cupy_suite.py CUPY_SOURCE/tests/cupy_tests/cuda_tests/test_memory.py ...
"""

import os
import re
import subprocess
import sys
import tempfile

from common import forebay

# Loaded by pytest before the tests.
PLUGIN = "import forebay\nforebay.cupy.install()\n"


def outcomes(plugin, files):
    """The outcome of each test by its name."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "forebay_under_cupy.py"), "w") as file:
            file.write(PLUGIN)
        package = os.path.dirname(os.path.dirname(forebay.__file__))
        paths = os.pathsep.join([folder, package, *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--tb=line", *files]
        command += ["-p", "forebay_under_cupy"] if plugin else []
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL) (\S+)", done.stdout, re.M)
    return {name: outcome for outcome, name in found}, done.stdout


def main():
    if len(sys.argv) < 2:
        print("skipped: name files of CuPy's tests, from its source")
        return 77
    results = {}
    for who in ("own", "forebay"):
        results[who], text = outcomes(who == "forebay", sys.argv[1:])
        print(f"{who}: {text.strip().splitlines()[-1] if text.strip() else 'nothing'}")
        if out := os.environ.get("OUT"):
            with open(os.path.join(out, f"cupy_suite_{who}.log"), "w") as file:
                file.write(text)
    own, ours = results["own"], results["forebay"]
    worse = [test for test, outcome in own.items() if outcome == "PASSED" and ours.get(test) != "PASSED"]
    for test in worse:
        print(f"  {test}: own PASSED, forebay {ours.get(test)}")
    count = {who: sum(outcome == "PASSED" for outcome in result.values()) for who, result in results.items()}
    print(f"pass with CuPy's own pool: {count['own']}, with forebay: {count['forebay']}; there and not here: {len(worse)}")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
