"""What columns.py asks of each allocator: a small program for each row.

It returns for yes. It raises Wrong for a wrong answer, and Absent, or whatever comes out of PyTorch, for no.
"""

import os
import pickle
import tempfile

import allocators

MIB, GIB = 1 << 20, 1 << 30
#: More than other programs on the device take or give back in the meantime.
BIG, TOLERANCE = 16 * GIB, 8 * GIB


class Wrong(Exception):
    """It is done, and the answer is not right."""


class Absent(Exception):
    """Everything is right, and the thing itself is not there."""


def must(holds, otherwise, kind=Wrong):
    if not holds:
        raise kind(otherwise)


def taken(torch, size, value=None):
    """A tensor of so many bytes, really written to where a value is given."""
    if value is None:
        return torch.empty(size, dtype=torch.uint8, device="cuda")
    return torch.full((size,), value, dtype=torch.uint8, device="cuda")


def used(torch):
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


# ---- figures


def stats(torch, who):
    kept = taken(torch, 10 * MIB)
    allocated = torch.cuda.memory_allocated()
    must(kept.nbytes <= allocated < 11 * MIB, f"memory_allocated is {allocated} for 10 MiB")
    must(torch.cuda.memory_reserved() >= allocated, f"memory_reserved is {torch.cuda.memory_reserved()}")
    must(torch.cuda.memory_stats()["allocation.all.current"] >= 1, "allocation.all.current is 0")


def summary(torch, who):
    kept = taken(torch, 10 * MIB)
    text = torch.cuda.memory_summary()
    must("Allocated memory" in text and "10" in text, f"no 10 MiB in it for {kept.nbytes} bytes")


def peaks(torch, who):
    kept = taken(torch, 10 * MIB)
    del kept
    peak = torch.cuda.max_memory_allocated()
    must(10 * MIB <= peak < 11 * MIB, f"max_memory_allocated is {peak} after 10 MiB")
    torch.cuda.reset_peak_memory_stats()
    must(torch.cuda.max_memory_allocated() < MIB, "the peak is not reset")


def profiler(torch, who):
    taken(torch, MIB)
    with torch.autograd.profiler.profile(use_device="cuda", profile_memory=True) as profile:
        taken(torch, 4 * MIB, 1)
    seen = max((getattr(event, "device_memory_usage", 0) for event in profile.function_events), default=0)
    must(seen >= 4 * MIB, f"it saw {seen} of 4 MiB")


def snapshot(torch, who):
    kept = taken(torch, 10 * MIB)
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if address == kept.data_ptr() and block["state"] == "active_allocated":
                return must(block["size"] >= kept.nbytes, f"the block has {block['size']} bytes")
            address += block["size"]
    raise Wrong("the tensor is in no block")


def history(torch, who):
    from torch.cuda import _memory_viz

    torch.cuda.memory._record_memory_history("all", stacks="python")
    kept = taken(torch, 10 * MIB)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        torch.cuda.memory._dump_snapshot(path)
        with open(path, "rb") as file:
            data = pickle.load(file)
    must(len(_memory_viz.trace_plot(data)) > 0, "the visualiser shows nothing")
    traced = [entry for trace in data["device_traces"] for entry in trace if entry["action"] == "alloc"]
    must(any(entry["addr"] == kept.data_ptr() for entry in traced), f"{len(traced)} allocations traced, ours not")
    framed = [block for segment in data["segments"] for block in segment["blocks"] if block.get("frames")]
    must(any(frame["name"] == "taken" for block in framed for frame in block["frames"]), "no block has our stack")


# ---- limits and failure


def fraction(torch, who):
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.75 * GIB / total)
    try:
        kept = taken(torch, GIB)
    except RuntimeError:
        kept = None
    must(kept is None, "1 GiB is given under a fraction of 0.75 GiB")
    taken(torch, 256 * MIB, 1)


def failed(torch):
    """What is raised for a tensor of 1 PiB."""
    try:
        got = taken(torch, 1 << 50)
    except RuntimeError as error:
        return error
    raise Wrong(f"a tensor of 1 PiB at address {got.data_ptr():#x}")


def oom_type(torch, who):
    error = failed(torch)
    must(isinstance(error, torch.OutOfMemoryError), f"{type(error).__name__}: {str(error).splitlines()[0]}")


def oom_report(torch, who):
    kept = taken(torch, 10 * MIB)
    text = str(failed(torch)).lower()
    must("free" in text and "ib" in text, f"no free memory named: {text.splitlines()[0]}")
    must(
        any(word in text for word in ("in use", "allocated", "live")), f"no use named for {kept.nbytes}: {text.splitlines()[0]}"
    )


def oom_observer(torch, who):
    told = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *figures: told.append(figures))
    failed(torch)
    must(len(told) == 1, f"called {len(told)} times")


def oom_after(torch, who):
    failed(torch)
    must(int(taken(torch, 64 * MIB, 7)[-1]) == 7, "the next tensor is wrong")


# ---- streams and graphs


def record_stream(torch, who):
    side, wrong = torch.cuda.Stream(), 0
    for number in range(30):
        x = torch.full((4 * MIB,), float(number), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(10_000_000)
            copy = x.clone()
        x.record_stream(side)
        del x
        # Would get the same memory at once, and write over what the side stream is about to read.
        y = torch.full((4 * MIB,), -1.0, device="cuda")
        side.synchronize()
        wrong += int((copy != float(number)).any())
        del y, copy
    must(wrong == 0, f"{wrong} of 30 copies have somebody else's values")


def graph(torch, who):
    layers = torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 10)
    model, x, side = torch.nn.Sequential(*layers).cuda(), torch.randn(64, 256, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(x).softmax(1)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured), torch.no_grad():
        z = (model(x) * 2).softmax(1)
    noise = [torch.full((64, number + 1), 9.0, device="cuda") for number in range(600)]
    wrong = 0
    for _ in range(4):
        x.copy_(torch.randn(64, 256, device="cuda"))
        captured.replay()
        got = z.clone()
        with torch.no_grad():
            wrong += not torch.allclose(got, (model(x) * 2).softmax(1), atol=1e-4)
    over = sum(bool((tensor != 9.0).any()) for tensor in noise)
    must(not wrong and not over, f"{wrong} of 4 replays wrong, {over} other tensors written over")


def mempool(torch, who):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = taken(torch, 8 * MIB, 1)
    address = inside.data_ptr()
    del inside
    outside = taken(torch, 8 * MIB, 2)
    must(outside.data_ptr() != address, "the pool's free memory is given to others")
    with torch.cuda.use_mem_pool(pool):
        again = taken(torch, 8 * MIB, 3)
    must(again.data_ptr() == address, "the pool's free memory is not used again in the pool")


def compiled(torch, mode):
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    layers = torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)
    model = torch.nn.Sequential(*layers).cuda()
    fast = torch.compile(model, mode=mode)
    for step in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(64, 128, device="cuda")
        output = fast(x)
        output.square().mean().backward()
        must(torch.allclose(output, model(x), atol=1e-3), f"step {step} differs from eager")
        del output
        model.zero_grad(set_to_none=True)
    must(not counters["inductor"]["cudagraph_skips"], "CUDA graphs were left out")


def compile_default(torch, who):
    compiled(torch, "default")


def compile_graphs(torch, who):
    compiled(torch, "reduce-overhead")


def cudnn_benchmark(torch, who):
    torch.backends.cudnn.benchmark = True
    layers = torch.nn.Conv2d(3, 32, 5), torch.nn.ReLU(), torch.nn.Conv2d(32, 16, 3)
    model = torch.nn.Sequential(*layers).cuda()
    for side in (32, 48):
        model(torch.randn(8, 3, side, side, device="cuda")).square().mean().backward()
    must(bool(torch.isfinite(model[0].weight.grad).all()), "gradients are not finite")


# ---- others


def share_child(who, inbox, outbox):
    torch = allocators.torch_on(who)
    tensor = inbox.get()
    tensor.add_(1)
    torch.cuda.synchronize()
    outbox.put(float(tensor.double().sum()))
    inbox.get()


def share(torch, who):
    context = torch.multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=share_child, args=(who, inbox, outbox), daemon=True)
    process.start()
    try:
        tensor = torch.ones(MIB, device="cuda")
        torch.cuda.synchronize()
        inbox.put(tensor)
        total = outbox.get(timeout=40)
        must(total == 2.0 * MIB and float(tensor.sum()) == total, f"the child sees {total}")
        inbox.put(None)
        process.join(10)
    finally:
        process.kill()


def loader(torch, who):
    data = torch.utils.data.TensorDataset(torch.arange(4096.0).view(256, 16))
    total = 0.0
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=32, pin_memory=True):
        must(batch.is_pinned(), "a batch is not pinned")
        total += float(batch.cuda(non_blocking=True).sum())
    must(total == 4096 * 4095 / 2, f"the sum is {total}")


def dlpack(torch, who):
    import cupy

    tensor = torch.arange(1000, device="cuda")
    array = cupy.from_dlpack(tensor)
    array += 1
    cupy.cuda.Device().synchronize()
    must(array.data.ptr == tensor.data_ptr() and int(tensor[0]) == 1, "it is a copy")
    back = torch.from_dlpack(cupy.arange(1000))
    must(int(back[-1]) == 999, "the way back is wrong")


def cupy_on(who):
    """CuPy, on the same memory where the allocator has a way to do that."""
    import cupy

    if who.startswith("forebay"):
        import forebay

        forebay.cupy.install()
    elif who.startswith("rmm"):
        from rmm.allocators.cupy import rmm_cupy_allocator

        cupy.cuda.set_allocator(rmm_cupy_allocator)
    return cupy


def one_limit(torch, who):
    """PyTorch and CuPy under one limit of 512 MiB, set as the allocator has it."""
    limit, part = 512 * MIB, 320 * MIB
    if who.startswith("forebay"):
        import forebay

        forebay.Pool.shared().set_limit(limit)
    elif who.startswith("rmm"):
        import rmm

        rmm.reinitialize(pool_allocator=True, initial_pool_size=limit // 2, maximum_pool_size=limit)
    else:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
    cupy = cupy_on(who)
    kept = taken(torch, part, 1)
    try:
        both = cupy.full(part, 2, cupy.uint8)
    except (MemoryError, RuntimeError):  # CuPy's exception is a MemoryError; a plug-in's may be any
        both = None
    must(both is None, f"{kept.nbytes + part} bytes are given under a limit of {limit}", Absent)
    del kept
    torch.cuda.synchronize()
    must(int(cupy.full(part, 3, cupy.uint8)[-1]) == 3, "wrong values")


# ---- what the device holds: one after the other, in one process for each allocator


def empty_cache(torch, who):
    taken(torch, MIB, 1)
    before = used(torch)
    kept = taken(torch, BIG, 1)
    during = used(torch)
    must(during - before > BIG - TOLERANCE, f"the device has only {(during - before) / GIB:.1f} GiB less")
    del kept
    torch.cuda.empty_cache()
    held = used(torch) - before
    must(held < TOLERANCE, f"{held / GIB:.1f} GiB of {BIG // GIB} stay", Absent)


def two_streams(torch, who):
    torch.cuda.empty_cache()
    before = used(torch)
    for value in range(3):
        with torch.cuda.stream(torch.cuda.Stream()):
            kept = taken(torch, BIG, value)
            del kept
    held = used(torch) - before
    must(held < BIG + TOLERANCE, f"{held / GIB:.0f} GiB are held for {BIG // GIB} on three streams in turn", Absent)


def graph_given_back(torch, who):
    torch.cuda.empty_cache()
    x, before = torch.ones(MIB, device="cuda"), used(torch)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        kept = x.new_ones(BIG // 4)
        y = kept.sum()
    captured.replay()
    must(float(y) > 0, "the graph's result is wrong")
    must(used(torch) - before > BIG - TOLERANCE, "the graph holds no memory")
    del captured, kept, y
    torch.cuda.empty_cache()
    held = used(torch) - before
    must(held < TOLERANCE, f"{held / GIB:.1f} GiB stay", Absent)


def with_cupy(torch, who):
    torch.cuda.empty_cache()
    cupy = cupy_on(who)
    cupy.arange(8).sum()
    before = used(torch)
    for _ in range(2):
        kept = taken(torch, BIG, 1)
        del kept
        kept = cupy.full(BIG, 2, cupy.uint8)
        del kept
    held = used(torch) - before
    must(held < BIG + TOLERANCE, f"{held / GIB:.0f} GiB are held for {BIG // GIB} in turn", Absent)


#: Rows: name, what it is called in the table, seconds that it may take.
ALONE = [(stats, "`memory_stats`, right values", 60), (summary, "`memory_summary`", 60),
         (peaks, "peaks and their reset", 60), (profiler, "the profiler's memory figures", 60),
         (snapshot, "`memory_snapshot`", 60), (history, "history, `_dump_snapshot` with stacks, visualiser", 60),
         (fraction, "memory fraction is kept to", 60), (oom_type, "`torch.OutOfMemoryError`", 60),
         (oom_report, "the error names free and used memory", 60), (oom_observer, "out-of-memory observer", 60),
         (oom_after, "goes on after out of memory", 60), (record_stream, "`record_stream` protects memory", 60),
         (graph, "CUDA graph: replays, nothing written over", 60), (mempool, "`torch.cuda.MemPool`", 60),
         (compile_default, "`torch.compile`", 150), (compile_graphs, "`torch.compile`, reduce-overhead", 150),
         (cudnn_benchmark, "`cudnn.benchmark`, training", 90), (share, "tensors to other processes", 90),
         (loader, "pinned `DataLoader`", 60), (dlpack, "DLPack with CuPy", 60),
         (one_limit, "one limit for PyTorch and CuPy", 60)]  # fmt: skip
TOGETHER = [(empty_cache, "`empty_cache` gives memory back", 60), (two_streams, "memory of one stream serves another", 60),
            (graph_given_back, "a released graph's memory comes back", 60),
            (with_cupy, "memory of PyTorch serves CuPy, and back", 60)]  # fmt: skip
