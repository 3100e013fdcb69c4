"""The RMM plug-in without a GPU: RMM's own objects call it, on the host driver."""

import os
import subprocess
import sys
import threading
import unittest

from support import MIB, Case, forebay

try:
    import rmm
    from rmm.pylibrmm.stream import Stream
except ImportError as error:
    raise unittest.SkipTest(f"RMM is not installed: {error}") from None

import forebay.rmm


class Resource(Case):
    def setUp(self):
        super().setUp()
        self.resource = forebay.rmm.MemoryResource()

    def given(self, pool=None):
        return (pool or forebay.Pool.shared()).stats().live_by_framework["rmm"]

    def test_it_is_rmms_and_says_what_it_is(self):
        self.assertIsInstance(self.resource, rmm.mr.DeviceMemoryResource)
        self.assertEqual((self.resource.device_id, repr(self.resource)), (0, "<forebay.rmm.MemoryResource device_id=0>"))
        self.assertEqual(self.resource.pool.driver, "host")

    def test_memory_comes_and_goes_in_the_order_of_streams(self):
        with forebay.Stream() as stream:
            for queue in (rmm.pylibrmm.stream.DEFAULT_STREAM, Stream(stream)):
                block = self.resource.allocate(1000, queue)
                self.assertEqual((block % 512, self.given()), (0, 1024))
                self.resource.deallocate(block, 1000, queue)
                self.assertEqual(self.given(), 0)
        self.assertEqual(self.resource.allocate(0), 0)
        self.resource.deallocate(0, 0)

    def test_it_serves_below_rmms_adaptors_and_from_any_thread(self):
        counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.TrackingResourceAdaptor(self.resource))

        def work():
            blocks = [counted.allocate(1 << (9 + number % 8)) for number in range(200)]
            self.assertEqual(len(set(blocks)), 200)
            for number, block in enumerate(blocks):
                counted.deallocate(block, 1 << (9 + number % 8))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((counted.allocation_counts.total_count, counted.allocation_counts.current_bytes), (800, 0))
        self.assertEqual(self.given(), 0)

    def test_out_of_memory_is_a_memory_error_with_the_report(self):
        pool = forebay.Pool(limit=8 * MIB)
        resource = forebay.rmm.MemoryResource(0, pool)
        block = resource.allocate(6 * MIB)
        with self.refused(MemoryError, "limit"):
            resource.allocate(6 * MIB)
        self.assertEqual(self.given(pool), 6 * MIB)
        resource.deallocate(block, 6 * MIB)
        self.assertEqual((self.given(pool), resource.pool is pool), (0, True))

    def test_what_is_not_live_is_told_to_the_log_and_changes_nothing(self):
        block = self.resource.allocate(512)
        for address in (block + 512, 12345, 1 << 60):
            with self.assertLogs("forebay.rmm", "ERROR") as log:
                self.resource.deallocate(address, 512)
            self.assertIn(hex(address), log.output[0])
        self.assertEqual(self.given(), 512)
        self.resource.deallocate(block, 512)
        with self.assertLogs("forebay.rmm", "ERROR") as log:
            self.resource.deallocate(block, 512)
        self.assertIn("freed before", log.output[0])

    def test_bad_arguments_are_refused(self):
        for device, kind in ((99, ValueError), (-1, ValueError), ("x", TypeError), (True, TypeError), (1.5, TypeError)):
            with self.subTest(device), self.assertRaises(kind):
                forebay.rmm.MemoryResource(device)
            with self.subTest(device), self.assertRaises(kind):
                forebay.rmm.install(device)
        with self.refused(TypeError, "forebay.Pool"):
            forebay.rmm.install(0, 5)

    def test_installing_makes_it_rmms_and_twice_is_once(self):
        before = rmm.mr.get_per_device_resource(0)
        self.addCleanup(rmm.mr.set_per_device_resource, 0, before)
        made = forebay.rmm.install(0)
        self.assertIs(rmm.mr.get_per_device_resource(0), made)
        rmm.mr.set_per_device_resource(0, before)
        self.assertIs(forebay.rmm.install(0), made)
        self.assertIs(rmm.mr.get_per_device_resource(0), made)
        pool = forebay.Pool()
        other = forebay.rmm.install(0, pool)
        self.assertIsNot(other, made)
        self.assertIs(forebay.rmm.install(0, pool), other)
        self.assertIs(other.pool, pool)

    def test_memory_that_is_live_at_the_end_says_nothing(self):
        program = (
            "import forebay, rmm\n"
            "mr = forebay.rmm.install(0)\n"
            "class Owner:\n"
            "    def __init__(self, mr): self.mr, self.block = mr, mr.allocate(1000)\n"
            "    def __del__(self): self.mr.deallocate(self.block, 1000)\n"
            "first, again = Owner(mr), Owner(mr)\n"
            "again.again = again\n"
        )
        path = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
