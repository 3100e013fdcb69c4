"""The memory fraction both ways, and that it holds."""

from common import MIB, finish, install, must, refused

torch = install()
must(torch.cuda.get_per_process_memory_fraction() == 1.0, "1 at first")
torch.cuda.set_per_process_memory_fraction(0.25)
must(abs(torch.cuda.get_per_process_memory_fraction() - 0.25) < 1e-6, "0.25 is answered as 0.25")
total = torch.cuda.mem_get_info()[1]
quarter = torch.empty(total // 4 - 64 * MIB, dtype=torch.uint8, device="cuda")
must(torch.cuda.memory_reserved() <= total // 4, "what fits is given")
refused(torch.OutOfMemoryError, lambda: torch.empty(128 * MIB, dtype=torch.uint8, device="cuda"), "limit")
del quarter
refused(ValueError, lambda: torch.cuda.set_per_process_memory_fraction(1.5), "1.5")
torch.cuda.set_per_process_memory_fraction(1.0)
torch.empty(total // 3, dtype=torch.uint8, device="cuda")
must(torch.cuda.get_per_process_memory_fraction() == 1.0, "and back")
finish()
