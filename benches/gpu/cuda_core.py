"""Forebay beside cuda.core, in one process: the same calls, the same answers, and what they cost.

    python3 benches/gpu/cuda_core.py [--json]

Every figure is the median of repeats in which the two take turns. A pair is one allocate and one close of a buffer.
"""

import json
import os
import statistics
import sys
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import cuda.core as core
import forebay

AS_JSON = "--json" in sys.argv
MIB, GIB = 1 << 20, 1 << 30
REPEATS = 15
warnings.simplefilter("ignore")


def same(what, theirs, ours):
    assert theirs == ours, f"{what}: cuda.core says {theirs!r}, Forebay {ours!r}"
    print(f"  same  {what}: {ours!r}")


def attempt(call):
    try:
        return call()
    except Exception as error:  # what it is differs between versions of cuda.core; that it is refused does not
        return f"refused: {type(error).__name__}"


def options(name, **values):
    return getattr(core, name)(**values), getattr(forebay, name)(**values)


# ---- the same answers -------------------------------------------------------------------------------


def compare_resources(device):
    print("answers")
    for name in ("is_device_accessible", "is_host_accessible", "is_handle_owned", "is_ipc_enabled", "is_mapped", "device_id"):
        theirs, ours = core.DeviceMemoryResource(device), forebay.DeviceMemoryResource(0)
        same(f"DeviceMemoryResource(0).{name}", getattr(theirs, name), getattr(ours, name))
    same("the current pool is one pool", int(core.DeviceMemoryResource(device).handle), int(forebay.DeviceMemoryResource(0).handle))
    for kind in ("Device", "Pinned"):
        theirs, ours = options(f"{kind}MemoryResourceOptions", ipc_enabled=True, max_size=64 * MIB)
        make = (lambda c, o: c(device, o) if kind == "Device" else c(o)), (lambda c, o: c(0, o) if kind == "Device" else c(o))
        theirs = make[0](getattr(core, f"{kind}MemoryResource"), theirs)
        ours = make[1](getattr(forebay, f"{kind}MemoryResource"), ours)
        names = ["is_device_accessible", "is_host_accessible", "is_handle_owned", "is_ipc_enabled", "is_mapped", "device_id"]
        if kind == "Pinned":
            names.append("numa_id")
        for name in names:
            same(f"{kind}MemoryResource(ipc).{name}", getattr(theirs, name), getattr(ours, name))
        for name in ("reuse_follow_event_dependencies", "reuse_allow_opportunistic", "reuse_allow_internal_dependencies",
                     "release_threshold", "reserved_mem_current", "used_mem_current"):
            same(f"{kind} attributes.{name}", getattr(theirs.attributes, name), getattr(ours.attributes, name))
        stream = device.default_stream
        a, b = theirs.allocate(MIB, stream=stream), ours.allocate(MIB, stream=stream)
        for name in ("size", "device_id", "is_device_accessible", "is_host_accessible"):
            same(f"{kind} buffer.{name}", getattr(a, name), getattr(b, name))
        same(f"{kind} attributes.used_mem_current after 1 MiB", theirs.attributes.used_mem_current, ours.attributes.used_mem_current)
        same(f"{kind} attributes.reserved_mem_high after 1 MiB", theirs.attributes.reserved_mem_high, ours.attributes.reserved_mem_high)
        same(f"{kind} buffer.__dlpack_device__()", tuple(map(int, a.__dlpack_device__())), tuple(map(int, b.__dlpack_device__())))
        a.close(), b.close()
        device.sync()
        same(f"{kind} used_mem_current after close", theirs.attributes.used_mem_current, ours.attributes.used_mem_current)
        theirs.close(), ours.close()
    theirs, ours = core.VirtualMemoryResource(device), forebay.VirtualMemoryResource(0)
    for name in ("is_device_accessible", "is_host_accessible", "device_id"):
        same(f"VirtualMemoryResource.{name}", getattr(theirs, name), getattr(ours, name))
    a, b = theirs.allocate(5 * MIB), ours.allocate(5 * MIB)
    same("virtual buffer.size of 5 MiB", a.size, b.size)
    a.close(), b.close()


# ---- what it costs ----------------------------------------------------------------------------------


def report(what, theirs, ours, unit="ns"):
    theirs, ours = statistics.median(theirs), statistics.median(ours)
    print(f"  {what:44} {theirs:12.0f} {ours:12.0f}   {theirs / ours:6.2f} times")
    if AS_JSON:
        print(json.dumps({"bench": f"cuda.core: {what}", f"cuda_core_{unit}": theirs, f"forebay_{unit}": ours}))


def pair(resource, size, stream, calls):
    allocate = resource.allocate
    start = time.perf_counter_ns()
    for _ in range(calls):
        allocate(size, stream=stream).close()
    return (time.perf_counter_ns() - start) / calls


def time_pairs(device):
    stream = device.create_stream()
    print(f"\n{'ns for allocate and close':46} {'cuda.core':>12} {'Forebay':>12}")
    warm = [core.DeviceMemoryResource(device, core.DeviceMemoryResourceOptions()), forebay.DeviceMemoryResource(0, {})]
    for pool in warm:
        pool.attributes  # made outside the loop
    pinned = [core.PinnedMemoryResource(core.PinnedMemoryResourceOptions()), forebay.PinnedMemoryResource({})]
    shared = forebay.PoolMemoryResource(0)
    own_pinned = forebay.PoolMemoryResource(0, forebay.Pool(pinned=True))
    registered = forebay.Pool.shared()
    contenders = [
        ("DeviceMemoryResource, 1 MiB", *warm, MIB, 5_000),
        ("DeviceMemoryResource / shared pool, 1 MiB", warm[0], shared, MIB, 20_000),
        ("PinnedMemoryResource, 1 MiB", *pinned, MIB, 2_000),
        ("PinnedMemoryResource / own pinned pool, 1 MiB", pinned[0], own_pinned, MIB, 2_000),
    ]
    del registered
    for what, theirs, ours, size, calls in contenders:
        held = theirs.allocate(size, stream=stream), ours.allocate(size, stream=stream)
        pair(theirs, size, stream, 100), pair(ours, size, stream, 100)
        times = [(pair(theirs, size, stream, calls), pair(ours, size, stream, calls)) for _ in range(REPEATS)]
        report(what, *zip(*times))
        for buffer in held:
            buffer.close()
        device.sync()
    legacy = device.default_stream
    pair(warm[0], MIB, legacy, 100), pair(shared, MIB, legacy, 100)
    times = [(pair(warm[0], MIB, legacy, 5_000), pair(shared, MIB, legacy, 20_000)) for _ in range(REPEATS)]
    report("the same on the default stream", *zip(*times))
    virtual = core.VirtualMemoryResource(device), forebay.VirtualMemoryResource(0)

    def virtual_pair(resource):
        start = time.perf_counter_ns()
        for _ in range(50):
            resource.allocate(2 * MIB).close()
        return (time.perf_counter_ns() - start) / 50

    times = [(virtual_pair(virtual[0]), virtual_pair(virtual[1])) for _ in range(REPEATS)]
    report("VirtualMemoryResource, 2 MiB", *zip(*times))


def grow(resource):
    """1 GiB to 65 GiB in 64 steps: the µs of each step, how often the address changed, what came in the way."""
    buffer = resource.allocate(GIB)
    steps, moves, kept, refused = [], 0, [buffer], ""
    for gib in range(2, 66):
        before = int(buffer.handle)
        start = time.perf_counter_ns()
        try:
            grown = resource.modify_allocation(buffer, gib * GIB)
        except Exception as error:  # what it is differs between versions of cuda.core
            refused = f"step {gib - 1} was refused: {type(error).__name__}"
            break
        steps.append((time.perf_counter_ns() - start) / 1000)
        moves += int(grown.handle) != before
        kept.append(grown)
        buffer = grown
    size = buffer.size
    start = time.perf_counter_ns()
    for each in kept:
        each.close()
    return steps, moves, size // GIB, (time.perf_counter_ns() - start) / 1000, refused


def time_growth(device):
    print(f"\n{'µs for each step of 1 GiB':46} {'cuda.core':>12} {'Forebay':>12}")
    ours, theirs = grow(forebay.VirtualMemoryResource(0)), grow(core.VirtualMemoryResource(device))
    assert ours[1] == 0 and ours[2] == 65 and not ours[4], ours
    for name, (steps, moves, size, closing, refused) in (("Forebay", ours), ("cuda.core", theirs)):
        print(f"  {name}: {len(steps)} steps to {size} GiB, {moves} moves, median {statistics.median(steps or [0]):.0f}, worst "
              f"{max(steps or [0]):.0f}, close {closing:.0f}; {refused or 'all steps done'}")
    if theirs[0]:
        report("growing by 1 GiB", theirs[0], ours[0], "us")


def main():
    device = core.Device(0)
    device.set_current()
    print(f"cuda.core {core.__version__}, Forebay {forebay.__version__}, {device.name}")
    compare_resources(device)
    time_pairs(device)
    time_growth(device)
    print("ok")


if __name__ == "__main__":
    main()
