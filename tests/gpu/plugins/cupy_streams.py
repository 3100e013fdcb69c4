"""Thousands of streams destroyed while blocks that they freed are cached and their work is pending."""

import gc

from common import cupy_spin, forebay, must, ok, stats, verify

import cupy

forebay.cupy.install()
spin, checked = cupy_spin(), 0
for batch in range(20):
    kept = []
    for number in range(250):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            array = cupy.full(20_000 + number, number, dtype=cupy.int32)
            if number % 10 == 0:
                spin(0.5)
            result = array + 1
            inside = number % 3 == 0
            if inside:
                del array
        if not inside:
            del array
        kept.append((result, stream.record(), number))
        del stream
    gc.collect()
    # Wants what the dead streams freed, elsewhere.
    others = [cupy.full(1 << 18, -1, dtype=cupy.int32) for _ in range(30)]
    for result, event, number in kept:
        event.synchronize()
        if int((result != number + 1).sum()):
            must(False, f"batch {batch}: the result of dead stream {number} is whole")
        checked += 1
    if any(int(other.max()) != -1 for other in others):
        must(False, f"batch {batch}: what took their memory is whole")
    del kept, others, result
    if batch % 5 == 4:
        forebay.cupy.pool().free_all_blocks()
        verify()
must(checked == 5000, "5000 streams destroyed, every result right")
print(f"  {stats().streams} streams remembered")
cupy.cuda.Device().synchronize()
must(stats().live_by_framework["cupy"] == 0, "nothing is live")
ok()
