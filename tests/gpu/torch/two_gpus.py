"""Two GPUs: figures of each, copies between them, peers, sharing of the second one's memory."""

import sys

from common import MIB, finish, install, must

torch = install()
if torch.cuda.device_count() < 2:
    print("  skipped: one GPU")
    finish()
    sys.exit(0)
a = torch.arange(64 * MIB, dtype=torch.int32, device="cuda:0")
must(torch.cuda.memory_allocated(1) == 0, "the second GPU is not touched before it is used")
b = a.to("cuda:1")
must(torch.cuda.memory_allocated(1) == b.nbytes, "its figures are its own")
must(bool((b == torch.arange(64 * MIB, dtype=torch.int32, device="cuda:1")).all()), "a copy is whole")
must(bool((a.t()[::3] == b.to("cuda:0")[::3]).all()), "and back")
back = torch.empty(8192, 4096, dtype=torch.int32, device="cuda:0").t()
back.copy_(torch.ones(4096, 8192, dtype=torch.int32, device="cuda:1"))
must(bool((back == 1).all()), "a copy that is not contiguous")
for _ in range(20):
    x = torch.full((16 * MIB,), 5.0, device="cuda:0")
    y = x.to("cuda:1", non_blocking=True)
    del x
    z = torch.zeros(16 * MIB, device="cuda:0")
    if not bool((y == 5.0).all()):
        must(False, "memory freed behind a copy is not written over")
    del y, z
must(True, "memory freed behind a copy is not written over")
before = torch.cuda.memory_reserved(1)
torch.cuda.empty_cache()
must(torch.cuda.memory_reserved(1) <= before, "empty_cache is for all GPUs")
finish()
