"""The allocations of a varying program as a trace that the replay example reads, so that a policy can be judged without a GPU.

    python3 benches/frameworks/record.py moe moe_real.csv.gz
    FOREBAY_DRIVER=host cargo run --release --example replay -- moe_real.csv.gz

Runs one workload of workloads.py whole on PyTorch's own allocator and writes what it asked for: sizes as the program gave them,
streams numbered as they come, from the first tensor on. Only memory that came from the caching allocator is in it.
"""

import argparse
import gzip
import sys

import workloads


def operations(events):
    """PyTorch's history of one device as lines of a trace. A block is free when PyTorch may use it again."""
    names, numbers, count = {}, {}, 0
    for event in events:
        stream = numbers.setdefault(event["stream"], len(numbers))
        if event["action"] == "alloc":
            count += 1
            names[event["addr"]] = count
            yield f"a,{count},{event['size']},{stream}\n"
        elif event["action"] == "free_completed" and event["addr"] in names:
            yield f"f,{names.pop(event['addr'])},0,{stream}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=list(workloads.WORKLOADS))
    parser.add_argument("file", help="TRACE.csv.gz, to be written")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--steps", type=int, help="default: the workload's own")
    options = parser.parse_args()
    options.allocator = "native"
    import torch

    def mark(where):
        if where == "context":
            torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=8_000_000)

    workloads.work(options, mark)
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    with gzip.open(options.file, "wt") as file:
        file.write("# op,id,bytes,stream\n")
        file.writelines(operations(events))
    print(f"{options.file}: {sum(event['action'] == 'alloc' for event in events)} allocations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
