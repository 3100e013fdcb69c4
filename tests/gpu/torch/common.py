"""What the programs here share. Each says what it checks, prints "ok NAME" last, and exits with 0 only then."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20
GIB = 1 << 30

sys.path.insert(0, str(ROOT / "python"))
_built = ROOT / "target" / "gpu" / "libforebay.so"
if _built.exists():
    os.environ.setdefault("FOREBAY_LIBRARY", str(_built))


def must(holds, what) -> None:
    """Prints what is checked; ends the program where it does not hold."""
    print(f"  {'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        sys.exit(1)


def refused(kind, work, *words) -> str:
    """Checks that `work` raises `kind` with these words in its text, and answers the text."""
    try:
        work()
    except kind as error:
        text = str(error)
        missing = [word for word in words if word.lower() not in text.lower()]
        must(not missing, f"{type(error).__name__}: {text.splitlines()[0][:150]}" + (f", lacks {missing}" if missing else ""))
        return text
    must(False, f"{kind.__name__} is raised")
    return ""


def install(*, mode=None):
    """Puts PyTorch on Forebay, unless the program runs with --native; answers torch."""
    import torch

    if "--native" not in sys.argv:
        import forebay

        done = forebay.torch.install(mode or "auto")
        print(f"  {done.mode} mode{', since ' + done.reason if done.reason else ''}", flush=True)
        if wanted := os.environ.get("FOREBAY_TORCH_MODE"):
            must(done.mode == wanted or wanted == "auto", f"mode {wanted} as asked for")
    return torch


def native(*arguments):
    """The figures that this program prints as its last line when it runs with --native, in a process of its own."""
    command = [sys.executable, os.path.abspath(sys.argv[0]), "--native", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    must(done.returncode == 0, "the same under PyTorch's own allocator")
    return json.loads(done.stdout.strip().splitlines()[-1])


def tell(figures) -> None:
    """The last line of a run with --native."""
    print(json.dumps(figures), flush=True)


def close(ours, theirs, tolerance=1e-5) -> bool:
    """Whether two lists of numbers agree, relative to their size."""
    same = len(ours) == len(theirs)
    return same and all(abs(a - b) <= tolerance * max(1.0, abs(b)) for a, b in zip(ours, theirs))


def finish() -> None:
    print(f"ok {Path(sys.argv[0]).stem}", flush=True)
