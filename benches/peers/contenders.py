"""Who takes part: one program each, built from a header in contenders/."""

from __future__ import annotations

from dataclasses import dataclass, field

#: In the order in which a program does them.
DEVICE = ("pairs", "replay", "random", "kernels", "handed_over", "threads", "other_thread")
PINNED = ("pinned_pairs", "pinned_random")
WITHOUT_MEMORY = tuple(workload for workload in DEVICE if workload != "kernels")  # these write to what they are given


@dataclass(frozen=True)
class Contender:
    """A program with its surroundings."""

    name: str
    title: str
    header: str
    needs: tuple[str, ...] = ()  # of "forebay", "rmm", "torch", "torch_cuda"
    defines: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    workloads: tuple[str, ...] = DEVICE
    patience: float = 1  # how much longer than others one pass of a long script may take before it is stopped
    role: str = "peer"  # "ours", "peer", or "aside": shown, but nobody's rival

    @property
    def start(self) -> str:
        """The workload that every program does first."""
        return "pinned_start" if self.workloads == PINNED else "start"

    @property
    def program(self) -> str:
        """Contenders that differ in their environment alone share a program."""
        return "-".join((self.header, *self.defines))


EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

CONTENDERS = (
    Contender("forebay", "Forebay", "forebay", ("forebay",), patience=3, role="ours"),
    Contender("cuda_async", "cudaMallocAsync", "cuda_async"),
    Contender("rmm_pool", "RMM pool", "rmm_pool", ("rmm",)),
    Contender("rmm_arena", "RMM arena", "rmm_arena", ("rmm",)),
    Contender("rmm_binning", "RMM binning", "rmm_binning", ("rmm",)),
    Contender("torch", "PyTorch", "torch", ("torch",)),
    Contender("torch_expandable", "PyTorch, expandable", "torch", ("torch",), environment=EXPANDABLE,
              workloads=("replay", "random")),
    Contender("cuda_malloc", "cudaMalloc", "cuda_malloc", patience=0.2),
    Contender("harness", "(harness)", "harness", workloads=WITHOUT_MEMORY, role="aside"),
    Contender("forebay_pinned", "Forebay", "forebay_pinned", ("forebay",), workloads=PINNED, patience=3, role="ours"),
    Contender("forebay_ready", "Forebay, ready at once", "forebay_pinned", ("forebay",), ("READY",), workloads=PINNED,
              patience=3, role="aside"),
    Contender("cuda_host_pool", "driver's host pool", "cuda_host_pool", workloads=PINNED),
    Contender("rmm_pinned", "RMM pool, pinned", "rmm_pinned", ("rmm",), workloads=PINNED),
    Contender("torch_pinned", "PyTorch, pinned", "torch_pinned", ("torch", "torch_cuda"), workloads=PINNED),
    Contender("cuda_host_alloc", "cudaHostAlloc", "cuda_host_alloc", workloads=PINNED, patience=0.4),
)

WORKLOADS = {
    "start": "Start",
    "pairs": "Allocate and free, warm",
    "random": "Random allocations and frees, at most 16 000 MiB live",
    "kernels": "Kernels on several streams",
    "handed_over": "Allocated on one stream, freed on another",
    "threads": "Threads, 16 blocks of 256 B to 64 KiB",
    "other_thread": "Allocated by one thread, freed by another",
    "replay": "Traces of real training",
    "pinned_start": "Start, pinned host memory",
    "pinned_pairs": "Pinned host memory",
    "pinned_random": "Pinned host memory, random, at most 2 GiB live",
}
