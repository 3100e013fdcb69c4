"""Base mode: PyTorch's stock class for allocators from outside, and Python's figures from Forebay.

The stock class raises for every figure, and PyTorch's Python functions ask it through functions of ``torch._C``. These are
replaced, for all of ``torch.cuda.memory_stats``, ``memory_allocated``, ``memory_summary``, ``memory_snapshot`` and the like:

``_cuda_memoryStats``, ``_cuda_resetPeakMemoryStats``, ``_cuda_resetAccumulatedMemoryStats``, ``_cuda_memorySnapshot``,
``_cuda_getMemoryFraction``; and what ``torch.accelerator`` asks, which finds PyTorch's own allocator:
``_accelerator_isAllocatorInitialized``, ``_accelerator_emptyCache``, ``_accelerator_getDeviceStats``,
``_accelerator_resetPeakStats``, ``_accelerator_resetAccumulatedStats``.

The pool keeps peaks and counts for all frameworks together: with others on the pool, PyTorch's peaks and counts here have
theirs in them. The adapter counts PyTorch's alone.
"""

from __future__ import annotations

from typing import Any, Optional

from .. import _core
from .._pool import Pool, PoolStats, shared_pool

#: PyTorch's setters, and the functions of Forebay's that they take the addresses of. Unset, each is a silent no-op.
HOOKS = {
    "set_init_fn": "forebay_torch_init",
    "set_reset_fn": "forebay_torch_reset",
    "set_memory_fraction_fn": "forebay_torch_memory_fraction",
    "set_base_alloc_fn": "forebay_torch_base_alloc",
    "set_record_stream_fn": "forebay_torch_record_stream",
    "set_begin_allocate_to_pool": "forebay_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "forebay_torch_end_allocate_to_pool",
    "set_release_pool": "forebay_torch_release_pool",
}

#: Counts at the last ``reset_accumulated_memory_stats``, by device.
_zero: dict[int, PoolStats] = {}


def pluggable(torch: Any) -> Any:
    """PyTorch's allocator object over Forebay, every hook set."""
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_core.library_path(), "forebay_torch_malloc", "forebay_torch_free")
    hooks = allocator.allocator()
    for setter, name in HOOKS.items():
        getattr(hooks, setter)(_core.address_of(name))
    return allocator


def install(torch: Any) -> None:
    """Sets the stock class, and replaces the functions that it has no answer for."""
    torch.cuda.memory.change_current_allocator(pluggable(torch))
    torch._C._cuda_memoryStats = memory_stats
    torch._C._cuda_resetPeakMemoryStats = reset_peaks
    torch._C._cuda_resetAccumulatedMemoryStats = reset_accumulated
    torch._C._cuda_memorySnapshot = snapshot
    torch._C._cuda_getMemoryFraction = memory_fraction
    torch._C._accelerator_isAllocatorInitialized = torch.cuda.is_initialized
    torch._C._accelerator_emptyCache = torch._C._cuda_emptyCache
    torch._C._accelerator_getDeviceStats = memory_stats
    torch._C._accelerator_resetPeakStats = reset_peaks
    torch._C._accelerator_resetAccumulatedStats = reset_accumulated


def memory_stats(device: int) -> dict[str, Any]:
    """The nested dictionary behind ``torch.cuda.memory_stats``."""
    stats = Pool.shared().stats(device)
    zero = _zero.get(device)
    live = stats.live_by_framework["torch"]
    # The peak of everybody together is PyTorch's own where it is alone.
    peak = max(live, stats.live_peak - (stats.live - live))
    count = stats.allocations - stats.frees
    chunks = stats.growths - stats.releases
    allocations = _Since(stats.allocations, stats.frees, zero, "allocations", "frees")
    mappings = _Since(stats.growths, stats.releases, zero, "growths", "releases")
    counted = _stat(count, count, allocations.made, allocations.gone)
    bytes_ = _stat(live, peak, peak, peak - live)
    nothing = _stat(0, 0, 0, 0)
    return {
        "allocation": counted,
        "segment": _stat(chunks, chunks, mappings.made, mappings.gone),
        "active": counted,
        "inactive_split": nothing,
        "allocated_bytes": bytes_,
        "reserved_bytes": _stat(stats.physical, stats.physical_peak, stats.physical_peak, stats.physical_peak - stats.physical),
        "active_bytes": bytes_,
        "inactive_split_bytes": nothing,
        "requested_bytes": bytes_,
        "oversize_allocations": nothing["all"],
        "oversize_segments": nothing["all"],
        "num_alloc_retries": 0,
        "num_ooms": stats.out_of_memory - (zero.out_of_memory if zero else 0),
        "num_sync_all_streams": 0,
        "num_device_alloc": mappings.made,
        "num_device_free": mappings.gone,
        "max_split_size": -1,
    }


class _Since:
    """Two counts, less what they were at the last reset."""

    def __init__(self, made: int, gone: int, zero: Any, made_name: str, gone_name: str) -> None:
        self.made = made - (getattr(zero, made_name) if zero else 0)
        self.gone = gone - (getattr(zero, gone_name) if zero else 0)


def _stat(current: int, peak: int, allocated: int, freed: int) -> dict[str, dict[str, int]]:
    whole = {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
    # The pool does not tell small requests from large ones.
    return {"all": whole, "small_pool": dict.fromkeys(whole, 0), "large_pool": dict(whole)}


def reset_peaks(device: int) -> None:
    """Behind ``torch.cuda.reset_peak_memory_stats``."""
    Pool.shared().reset_peaks(device)


def reset_accumulated(device: int) -> None:
    """Behind ``torch.cuda.reset_accumulated_memory_stats``."""
    _zero[device] = Pool.shared().stats(device)


def memory_fraction(device: int) -> float:
    """Behind ``torch.cuda.get_per_process_memory_fraction``."""
    pool = Pool.shared()
    limit = pool.limit(device)
    return limit / pool.memory_info(device)[1] if limit else 1.0


STATES = {0: "inactive", 1: "active_allocated", 2: "active_pending_free"}


def blocks(device: int) -> list[_core.Block]:
    """Every block of the shared pool on a device, in address order."""
    return _core.pool_snapshot(shared_pool(), device)


def snapshot(which: Optional[tuple[int, int, bool]] = None) -> dict[str, Any]:
    """Behind ``torch.cuda.memory_snapshot``: segments without stacks, and no trace."""
    first, second = which[:2] if which else (0, 0)
    segments: list[dict[str, Any]] = []
    for device in range(Pool.shared().device_count):
        end = None
        for block in blocks(device):
            pool = (block.private_first, block.private_second) if block.is_private else (0, 0)
            if (first, second) not in ((0, 0), pool):
                continue
            if end != block.address or segments[-1]["segment_pool_id"] != pool:
                segments.append(_segment(device, block, pool))
            segment, live = segments[-1], block.state == 1
            end = block.address + block.bytes
            requested = block.bytes if live else 0
            entry = {
                "address": block.address,
                "size": block.bytes,
                "requested_size": requested,
                "state": STATES[block.state],
                "frames": [],
            }
            segment["blocks"].append(entry)
            segment["total_size"] += block.bytes
            segment["allocated_size"] += requested
            segment["requested_size"] += requested
            segment["active_size"] += block.bytes if block.state else 0
    return {"segments": segments, "device_traces": [], "allocator_settings": {}, "external_annotations": []}


def _segment(device: int, block: _core.Block, pool: tuple[int, int]) -> dict[str, Any]:
    return {
        "device": device,
        "address": block.address,
        "total_size": 0,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": block.stream,
        "segment_type": "large",
        "segment_pool_id": pool,
        "is_expandable": True,
        "frames": [],
        "blocks": [],
    }
