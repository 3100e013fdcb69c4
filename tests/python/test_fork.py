"""Children of ``fork``: what is called answers FORKED, what ends says nothing, and the parent's memory stays the parent's."""

import unittest

from support import Case

#: What each program has: buffers of every kind, known to both processes, and threads that are in the middle of calls.
WORLD = """
import ctypes, gc, os, signal, sys, threading
import forebay
from forebay import _core, pressure
from forebay._pool import shared_pool

FORKED = forebay.Status.FORKED
sys.setswitchinterval(1e-4)  # the main thread has to get its turn among the others
pressure.start()
own = forebay.Pool()
virtual = forebay.VirtualMemoryResource(0)
resources = [
    forebay.DeviceMemoryResource(0, forebay.DeviceMemoryResourceOptions(ipc_enabled=True)),
    forebay.PinnedMemoryResource(),
    forebay.ManagedMemoryResource(),
    virtual,
    forebay.HostMemoryResource(),
    forebay.PoolMemoryResource(0),
    forebay.PoolMemoryResource(0, own),
]
stream = forebay.Stream()
buffers = [resource.allocate(4 << 20, stream) for resource in resources]
for buffer in buffers:
    buffer.fill(7, stream=stream)
stream.sync()

freed = []
class Mine(forebay.MemoryResource):
    def allocate(self, size, stream=None): return forebay.Buffer.from_handle(0x5000, size, self)
    def deallocate(self, ptr, size, stream=None): freed.append(ptr)
    device_id, is_device_accessible, is_host_accessible = 0, True, True
buffers.append(Mine().allocate(5))
buffers.append(forebay.Buffer.from_handle(buffers[1].handle, 64, owner=object()))
capsules = [buffers[0].__dlpack__(), buffers[4].__dlpack__(max_version=(1, 0)), buffers[3].__dlpack__()]
taken = forebay.Buffer.from_dlpack(buffers[4])

class Queue:
    def __cuda_stream__(self): return 0, 0
class Core(_core.CoreBase): pass
core = Core()
core._connect(shared_pool(), None, 0, False, lambda ptr, size, mr, stream: ptr, lambda stream: 0)
held = core.allocate(512, stream=Queue())

def stays():
    assert not freed, freed
    assert all(bytes(buffer.as_memoryview()) == b"\\7" * (4 << 20) for buffer in (buffers[1], buffers[4])), "written"

def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(50)
        work()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child"

def at_work(forks):
    over = threading.Event()
    def work(resource):
        with forebay.Stream() as queue:
            while not over.is_set():
                with resource.allocate(1 << 16, queue) as buffer:
                    buffer.fill(1, stream=queue)
                queue.sync()
                resource.trim()
    threads = [threading.Thread(target=work, args=[resource]) for resource in resources]
    [thread.start() for thread in threads]
    try:
        forks()
    finally:
        over.set()
        [thread.join() for thread in threads]

def end():
    stays()
    live = forebay.Pool.shared().stats().live
    assert live == (4 << 20) + 512, live
    core.deallocate(held, 512, stream=Queue())
    taken.close()
    [buffer.close() for buffer in buffers]
    assert freed == [0x5000], freed
    print("done")
"""


class Forked(Case):
    def test_calls_are_refused(self):
        out = self.run_program(
            WORLD + "def told(call):\n"
            "    try:\n"
            "        call()\n"
            "    except forebay.ForebayError as error:\n"
            "        assert error.status == FORKED and 'fork' in str(error), error\n"
            "    else:\n"
            "        raise AssertionError('it says that it worked')\n"
            "def child():\n"
            "    for resource in resources:\n"
            "        told(lambda: resource.allocate(64))\n"
            "        told(resource.close)\n"
            "        told(resource.trim)\n"
            "        told(lambda: resource.deallocate(0x1000, 64))\n"
            "        told(lambda: resource.device_id)\n"
            "    for buffer in buffers[:7]:\n"
            "        told(buffer.close)\n"
            "        told(lambda: buffer.close(stream))\n"
            "        told(lambda: buffer.fill(9, stream=stream))\n"
            "        told(lambda: buffer.copy_to(stream=stream))\n"
            "        told(lambda: buffer.__dlpack__())\n"
            "        def inside():\n"
            "            with buffer: pass\n"
            "        told(inside)\n"
            "    told(buffers[7].close)\n"
            "    told(lambda: virtual.modify_allocation(buffers[3], 8 << 20))\n"
            "    told(buffers[3].get_ipc_descriptor)\n"
            "    told(forebay.Pool)\n"
            "    told(forebay.Pool.shared)\n"
            "    told(lambda: own.driver)\n"
            "    told(own.stats)\n"
            "    told(own.trim)\n"
            "    told(forebay.Stream)\n"
            "    told(stream.sync)\n"
            "    told(lambda: core.allocate(64, stream=Queue()))\n"
            "    core.deallocate(held, 512, stream=Queue())  # what ends a buffer of cuda.core's\n"
            "in_child(child)\n"
            "at_work(lambda: [in_child(child) for _ in range(3)])\n"
            "end()\n"
        )
        self.assertEqual(out, "done\n")

    def test_what_ends_says_nothing(self):
        # On stderr there would be what is raised in finalizers.
        out = self.run_program(
            WORLD + "def deleted():\n"
            "    global buffers, resources, stream, own, virtual, capsules, taken\n"
            "    del buffers, resources, stream, own, virtual, capsules, taken\n"
            "    gc.collect()\n"
            "def collected():\n"
            "    cycle = [buffers, resources, stream, own, taken]\n"
            "    cycle.append(cycle)\n"
            "    deleted()\n"
            "    del cycle\n"
            "    gc.collect()\n"
            "def nothing(): pass\n"
            "def locked():\n"
            "    assert not pressure._guard.locked() and not pressure._busy.locked()\n"
            "for child in (deleted, collected, nothing):\n"
            "    in_child(child)\n"
            "    at_work(lambda: [in_child(child) for _ in range(3)])\n"
            "with pressure._guard, pressure._busy:\n"
            "    in_child(nothing)\n"
            "    in_child(locked)\n"
            "end()\n"
        )
        self.assertEqual(out, "done\n")


if __name__ == "__main__":
    unittest.main()
