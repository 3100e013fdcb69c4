"""Snapshots: what _dump_snapshot writes is opened by the public visualiser's own code, and adds up."""

import os
import pickle
import tempfile

from common import MIB, finish, install, must

torch = install()
from torch.cuda import _memory_viz as viz  # noqa: E402  (PyTorch is installed onto first)

torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=10000)
before = torch.cuda.memory._snapshot()


def make(count):
    return [torch.empty((index + 1) * MIB, dtype=torch.uint8, device="cuda") for index in range(count)]


kept = make(8)
del kept[3], kept[1]
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    other = torch.ones(3 * MIB, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
torch.cuda.memory._snapshot()  # an entry of the next one's trace
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "snapshot.pickle")
    torch.cuda.memory._dump_snapshot(path)
    with open(path, "rb") as file:
        data = pickle.load(file)
torch.cuda.memory._record_memory_history(None)
must({"segments", "device_traces", "allocator_settings"} <= set(data), f"the file has {sorted(data)}")

live = {tensor.data_ptr(): tensor.nbytes for tensor in [*kept, other]}
found, framed = {}, 0
for segment in data["segments"]:
    sizes = sum(block["size"] for block in segment["blocks"])
    if sizes != segment["total_size"]:
        must(False, f"blocks of {sizes} bytes fill the segment of {segment['total_size']}")
    address = segment["address"]
    for block in segment["blocks"]:
        if block.get("address", address) != address:
            must(False, "blocks follow one another")
        if block["state"] == "active_allocated":
            found[address] = block["size"]
            framed += any("make" in frame["name"] for frame in block.get("frames", []))
        address += block["size"]
must(all(found.get(address) == size for address, size in live.items()), f"each of {len(live)} live tensors is a live block")
must(framed >= len(kept), f"{framed} live blocks have the Python function that made them in their stacks")
total = sum(segment["total_size"] for segment in data["segments"])
must(total >= torch.cuda.memory_allocated(), f"segments of {total} bytes cover what is allocated")
actions = {entry["action"] for trace in data["device_traces"] for entry in trace}
must({"alloc", "free_requested", "free_completed", "segment_map", "snapshot"} <= actions, f"traced: {sorted(actions)}")

for name, text in {
    "segments": lambda: viz.segments(data, format_flamegraph=lambda lines: lines),
    "memory": lambda: viz.memory(data, format_flamegraph=lambda lines: lines),
    "compare": lambda: viz.compare(before["segments"], data["segments"], format_flamegraph=lambda lines: lines),
    "segsum": lambda: viz.segsum(data),
    "trace": lambda: viz.trace(data),
    "trace_plot": lambda: viz.trace_plot(data),
    "trace_plot with segments": lambda: viz.trace_plot(data, plot_segments=True),
    "segment_plot": lambda: viz.segment_plot(data),
}.items():
    must(len(text()) > 0, f"_memory_viz.{name} opens it")
must(len(torch.cuda.memory_snapshot()) == len(data["segments"]), "memory_snapshot has the same segments")
finish()
