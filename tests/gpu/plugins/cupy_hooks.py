"""CuPy's memory hooks over Forebay, and what allocation costs without, with and after them."""

import io
import threading

from common import MIB, forebay, must, nanoseconds, ok, refused, stats

import cupy
from cupy.cuda import memory_hooks

forebay.cupy.install()
forebay.cupy.pool().free_all_blocks()
without = nanoseconds(lambda: cupy.empty(512, cupy.uint8))


class Log(cupy.cuda.MemoryHook):
    name = "Log"

    def __init__(self):
        self.log = []


def logging(event):
    return lambda self, **words: self.log.append((event, words))


EVENTS = [f"{what}_{when}process" for what in ("malloc", "alloc", "free") for when in ("pre", "post")]
for event in EVENTS:
    setattr(Log, event, logging(event))

with Log() as hook:
    array = cupy.empty(200 * MIB + 1, cupy.uint8)
    address = array.data.ptr
    del array
must([event for event, _ in hook.log] == [EVENTS[0], *EVENTS[2:4], EVENTS[1], *EVENTS[4:]], "every hook in order")
told = dict(hook.log)
size = 200 * MIB + 512
must(told["malloc_preprocess"] == {"device_id": 0, "size": 200 * MIB + 1, "mem_size": size}, "what is asked for")
post = told["malloc_postprocess"]
must((post["mem_ptr"], post["mem_size"]) == (address, size), "what was given")
freed = {"device_id": 0, "mem_size": size, "mem_ptr": address, "pmem_id": post["pmem_id"]}
must(told["free_postprocess"] == freed, "what is freed")
must(told["alloc_postprocess"]["mem_size"] >= 150 * MIB, "how much the pool grew")
with Log() as hook:
    cupy.empty(200 * MIB + 1, cupy.uint8)
must([event for event, _ in hook.log] == [EVENTS[0], EVENTS[1], *EVENTS[4:]], "no growth, no alloc hooks")
with Log() as hook:
    refused(cupy.cuda.memory.OutOfMemoryError, lambda: cupy.empty(1 << 50, cupy.uint8))
must(hook.log[-1][1]["mem_ptr"] == 0, "a failure is told with address 0")

out = io.StringIO()
with memory_hooks.DebugPrintHook(file=out, flush=False):
    cupy.ones(1000)
must('"hook":"malloc"' in out.getvalue() and '"hook":"free"' in out.getvalue(), "DebugPrintHook prints")
with memory_hooks.LineProfileHook() as profile:
    array = cupy.ones(MIB)
out = io.StringIO()
profile.print_report(file=out)
must("8.00MB" in out.getvalue(), "LineProfileHook counts")


class Raises(cupy.cuda.MemoryHook):
    name = "Raises"

    def malloc_postprocess(self, **_):
        raise KeyError("planted")


del array
live = stats().live
with Raises():
    refused(KeyError, lambda: cupy.empty(4096, cupy.uint8), "planted")
must(stats().live == live, "what a hook refused is not leaked")

times = []
thread = threading.Thread(target=lambda: times.append(nanoseconds(lambda: cupy.empty(512, cupy.uint8))))
thread.start()
thread.join()
after = nanoseconds(lambda: cupy.empty(512, cupy.uint8))
with Log():
    within = nanoseconds(lambda: cupy.empty(512, cupy.uint8), 2000)
print(
    f'{{"bench": "cupy empty(512) with memory hooks", "never_ns": {without:.0f}, "other_thread_ns": {times[0]:.0f}, '
    f'"after_ns": {after:.0f}, "within_ns": {within:.0f}}}'
)
ok()
