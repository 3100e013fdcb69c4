"""Out of memory: torch.OutOfMemoryError with the report, observers, and life after it."""

from common import GIB, MIB, finish, install, must, refused

torch = install()
torch.cuda.set_per_process_memory_fraction(0.05)
total = torch.cuda.get_device_properties(0).total_memory
told = []
if torch.cuda.get_allocator_backend() == "forebay":
    torch._C._cuda_attach_out_of_memory_observer(lambda *figures: told.append(figures))
kept = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
before = torch.cuda.memory_allocated()
text = refused(
    torch.OutOfMemoryError, lambda: torch.empty(total, dtype=torch.uint8, device="cuda"), "out of memory", "Forebay", "limit"
)
print("    " + text.replace("\n", "\n    "))
if torch.cuda.get_allocator_backend() == "forebay":
    must("CUDA out of memory" in text, "in PyTorch's own words, which retry code looks for")
    must(len(told) == 1 and told[0][1] == total, f"the observer was told: {told}")
must(torch.cuda.memory_allocated() == before, "nothing was allocated")
must(torch.cuda.memory_stats()["num_ooms"] == 1, "num_ooms counts it")
hoard = torch.empty(int(total * 0.03), dtype=torch.uint8, device="cuda")
refused(torch.cuda.OutOfMemoryError, lambda: torch.empty(int(total * 0.03), dtype=torch.uint8, device="cuda"))
del hoard
again = torch.full((GIB,), 7, dtype=torch.uint8, device="cuda")
must(int(again[-1]) == 7, "caught, freed, retried: there is room")
finish()
