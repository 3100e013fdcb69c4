"""torch.cuda.memory_stats and all that is made of it: keys as native has them, figures that follow tensors, peaks, resets."""

import sys

from common import MIB, finish, install, must, native, tell

torch = install()

if "--native" in sys.argv:
    torch.empty(1, device="cuda")
    tell({"keys": sorted(torch.cuda.memory_stats()), "summary": torch.cuda.memory_summary().count("\n")})
    sys.exit(0)

must(torch.cuda.memory_allocated() == 0, "nothing is allocated before the first tensor")
a = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
b = torch.empty(1000, dtype=torch.uint8, device="cuda")
must(torch.cuda.memory_allocated() == 10 * MIB + 1024, f"memory_allocated {torch.cuda.memory_allocated()}")
must(torch.cuda.memory_reserved() >= torch.cuda.memory_allocated(), f"memory_reserved {torch.cuda.memory_reserved()}")
must(torch.accelerator.memory_allocated() == torch.cuda.memory_allocated(), "torch.accelerator answers the same")
stats = torch.cuda.memory_stats()
if torch.cuda.get_allocator_backend() == "forebay":
    must(stats["requested_bytes.all.current"] == 10 * MIB + 1000, "requested bytes are not rounded")
    must(stats["allocated_bytes.small_pool.current"] == 1024, "small tensors are told from large ones")
    must(stats["allocation.all.current"] == 2, "two allocations")
must(stats["num_device_alloc"] > 0, f"mappings: {stats['num_device_alloc']}")
middling = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in range(60_000, 1_200_000, 7_919)]
lengths = sum(max(x.numel(), 512) for x in middling)
more = torch.cuda.memory_allocated() - 10 * MIB - 1024
must(lengths <= more <= lengths * 65 // 64 + 512 * len(middling), f"{more} bytes of blocks for {lengths}")
middling.clear()
must(torch.cuda.memory_allocated() == 10 * MIB + 1024, "a block counts as much when it goes as when it came")
del a
must(torch.cuda.memory_allocated() == 1024, "freed at once")
must(torch.cuda.max_memory_allocated() == 10 * MIB + 1024 + more, "max_memory_allocated stays")
torch.cuda.reset_peak_memory_stats()
must(torch.cuda.max_memory_allocated() == 1024, "until it is reset")
torch.cuda.empty_cache()
must(torch.cuda.memory_reserved() <= 2 * MIB, f"empty_cache leaves one page: {torch.cuda.memory_reserved()}")
torch.cuda.reset_peak_memory_stats()
must(torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved(), "max_memory_reserved is reset too")
torch.cuda.reset_accumulated_memory_stats()
stats = torch.cuda.memory_stats()
if torch.cuda.get_allocator_backend() == "forebay":
    must(stats["allocated_bytes.all.allocated"] == 0, "accumulated figures are reset")
if torch.cuda.get_allocator_backend() == "forebay":
    torch.cuda.caching_allocator_enable(False)
    direct = torch.full((MIB,), 3, dtype=torch.uint8, device="cuda")
    must(torch.cuda.memory_allocated() == 1024 and int(direct[-1]) == 3, "with the cache off memory is cudaMalloc's")
    torch.cuda.caching_allocator_enable(True)
    again = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    must(torch.cuda.memory_allocated() == MIB + 1024, "and Forebay's when it is on again")
    del direct, again
ours = {"keys": sorted(stats), "summary": torch.cuda.memory_summary().count("\n")}
theirs = native()
must(ours["keys"] == theirs["keys"], f"the same {len(stats)} keys as native")
must(ours["summary"] == theirs["summary"], "memory_summary has as many lines as native's")
must("Allocated memory" in torch.cuda.memory_summary(), "memory_summary")
with torch.autograd.profiler.profile(use_device="cuda", profile_memory=True) as profile:
    torch.ones(4 * MIB, dtype=torch.uint8, device="cuda")
if torch.cuda.get_allocator_backend() == "forebay":
    grown = max(getattr(event, "device_memory_usage", 0) for event in profile.function_events)
    must(grown >= 4 * MIB, f"the profiler sees {grown} bytes")
finish()
