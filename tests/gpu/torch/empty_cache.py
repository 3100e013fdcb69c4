"""empty_cache gives everything back that no tensor has, and the driver sees it."""

from common import GIB, finish, install, must

torch = install()
torch.ones(1, device="cuda")
torch.cuda.empty_cache()
before = torch.cuda.mem_get_info()[0]
tensors = [torch.ones(GIB // 4, dtype=torch.uint8, device="cuda") for _ in range(8)]
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    tensors.append(torch.ones(GIB // 4, dtype=torch.uint8, device="cuda"))
during = torch.cuda.mem_get_info()[0]
must(before - during >= 2 * GIB, f"2.25 GiB in use: the device has {(before - during) >> 20} MiB less")
tensors.clear()
must(torch.cuda.memory_reserved() >= 2 * GIB, "free memory is kept for the next tensor")
torch.cuda.empty_cache()
must(torch.cuda.memory_reserved() <= 8 << 20, f"empty_cache leaves {torch.cuda.memory_reserved() >> 20} MiB")
after = torch.cuda.mem_get_info()[0]
# What kernels and streams take of the context stays.
must(before - after <= 128 << 20, f"the device has {(before - after) >> 20} MiB less than before")
finish()
