"""Runs every program of this folder in a process of its own; ends with a summary, and with 1 if one failed.

    python3 tests/gpu/plugins/all.py            # or names: all.py cupy_install one_pool
"""

import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = (
    "cupy_install", "cupy_async_pool", "cupy_pinned", "cupy_streams", "cupy_hooks",
    "numba_manager", "numba_ipc", "cuda_core", "rmm_install", "one_pool",
)  # fmt: skip
#: The exit of a program whose framework is not installed; its last line says which.
SKIPPED = 77


def run(name):
    """Says how it ended: ok, failed or skipped."""
    start = time.monotonic()
    command = [sys.executable, "-X", "faulthandler", os.path.join(HERE, f"{name}.py")]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        text, code = (error.stdout or b"").decode(), "time limit"
    if code == SKIPPED:
        print(f"== {name}: {text.splitlines()[-1]}")
        return "skipped"
    right = code == 0 and f"ok {name}\n" in text and "Exception ignored" not in text
    print(f"== {name}: {'ok' if right else f'FAILED, exit {code}'} ({time.monotonic() - start:.0f} s)")
    lines = text.splitlines()
    for line in lines if not right else [line for line in lines if line.startswith("{")]:
        print(line)
    return "ok" if right else "failed"


if __name__ == "__main__":
    wanted = sys.argv[1:] or NAMES
    ended = {name: run(name) for name in wanted}
    passed, skipped = (sum(how == each for each in ended.values()) for how in ("ok", "skipped"))
    failed = [name for name, how in ended.items() if how == "failed"]
    print(f"{passed} passed, {skipped} skipped, {len(failed)} failed {' '.join(failed)}".rstrip())
    sys.exit(bool(failed))
