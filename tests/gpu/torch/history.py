"""_record_memory_history: on and off, levels, the limit of entries, and out of memory as an entry."""

from common import MIB, finish, install, must

torch = install()


def entries():
    return torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]


def work(count):
    for index in range(count):
        torch.empty((index % 5 + 1) * MIB, dtype=torch.uint8, device="cuda")


work(1)
must(entries() == [], "nothing is recorded before it is asked for")
torch.cuda.memory._record_memory_history("all", max_entries=50)
work(10)
seen = entries()
must(sum(entry["action"] == "alloc" for entry in seen) == 10, "ten allocations, ten entries")
must(any(entry.get("frames") for entry in seen), "with stacks")
stamps = [entry["time_us"] for entry in seen]
must(stamps == sorted(stamps), "in the order of time")
work(100)
must(len(entries()) == 50, "no more than max_entries are kept")
torch.cuda.memory._record_memory_history("all", max_entries=1000, clear_history=True)
must(not any(entry["action"] == "alloc" for entry in entries()), "clear_history clears")
torch.cuda.memory._set_memory_metadata("a label")
work(1)
must(torch.cuda.memory._get_memory_metadata() == "a label", "metadata is kept")
must(any(entry.get("user_metadata") == "a label" for entry in entries()), "and is in the entries")
torch.cuda.memory._set_memory_metadata("")
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    must(False, "a pebibyte is refused")
except torch.OutOfMemoryError:
    pass
oom = [entry for entry in entries() if entry["action"] == "oom"]
must(len(oom) == 1 and oom[0]["size"] == 1 << 50 and oom[0]["device_free"] > 0, "out of memory is an entry")
torch.cuda.empty_cache()
must(any(entry["action"] == "segment_unmap" for entry in entries()), "empty_cache shows as segment_unmap")
torch.cuda.memory._record_memory_history(None)
work(5)
must(not torch._C._cuda_isHistoryEnabled(), "off again")
must(entries() == [], "and nothing is recorded")
finish()
