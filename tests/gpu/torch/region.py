"""forebay.torch.MemPool: Forebay for a part of a program, under each way that PyTorch may be set up."""

import os
import subprocess
import sys

from common import MIB, finish, must


def check(setup):
    import forebay
    import torch

    if setup != "native":
        forebay.torch.install(setup)
    before = torch.ones(4 * MIB, dtype=torch.uint8, device="cuda")
    live = forebay.Pool.shared().stats().live_by_framework["torch"]
    must((live == 0) == (setup == "native"), f"outside, Forebay has {live} bytes of PyTorch's")
    pool = forebay.torch.MemPool()
    with pool as entered:
        inside = torch.full((32 * MIB,), 3, dtype=torch.uint8, device="cuda")
        with pool:
            again = torch.full((2 * MIB,), 4, dtype=torch.uint8, device="cuda")
    must(entered is pool and pool.id is not None, "the pool is what `as` gives, and has an id")
    grown = forebay.Pool.shared().stats().live_by_framework["torch"] - live
    must(grown >= 34 * MIB, f"inside, Forebay has {grown >> 20} MiB more")
    outside = torch.ones(16 * MIB, dtype=torch.uint8, device="cuda")
    now = forebay.Pool.shared().stats().live_by_framework["torch"] - live - grown
    must((now == 0) == (setup == "native"), "what is made after it is not in it")
    must(int(inside[-1]) == 3 and int(again[-1]) == 4 and int(before[0]) == 1 and int(outside[0]) == 1, "all of it works")
    del inside, again, pool, entered
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    left = forebay.Pool.shared().stats().live_by_framework["torch"]
    must(left <= live + 16 * MIB, f"with the pool its memory goes: {left >> 20} MiB left")


if len(sys.argv) > 1:
    check(sys.argv[1])
else:
    environment = {key: value for key, value in os.environ.items() if key != "FOREBAY_TORCH_MODE"}
    for setup in ("native", "adapter", "base"):
        print(f" {setup}", flush=True)
        done = subprocess.run([sys.executable, os.path.abspath(__file__), setup], env=environment)
        must(done.returncode == 0, f"with PyTorch {setup}")
    finish()
