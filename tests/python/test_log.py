"""The library's log in Python's `logging`."""

import ctypes
import logging
import unittest

from support import MIB, Case, forebay

WORLD = """
import ctypes, logging, os, sys, threading
import forebay
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
free = free(forebay.address_of("forebay_torch_free"))
pool = forebay.Pool.shared()
buffer = forebay.PoolMemoryResource(0).allocate(1024)
def bad_free(): free(buffer.handle + 512, 512, 0, None)
"""


def bad_free(address):
    hook = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    hook(forebay.address_of("forebay_torch_free"))(address, 512, 0, 0x1)


def grow():
    """More than is held: the pool makes room, and says so to who wants to know everything."""
    pool = forebay.Pool.shared()
    pool.trim()
    forebay.PoolMemoryResource(0).allocate(80 * MIB).close()


class Log(Case):
    def setUp(self):
        super().setUp()
        self.logger = logging.getLogger("forebay")
        self.addCleanup(self.logger.setLevel, self.logger.level)

    def test_a_bad_free_through_a_hook_is_a_warning(self):
        with forebay.PoolMemoryResource(0).allocate(1024) as buffer, self.assertLogs("forebay", logging.WARNING) as seen:
            wrong = buffer.handle + 512
            bad_free(wrong)
        (record,) = seen.records
        self.assertEqual((record.name, record.levelno), ("forebay", logging.WARNING))
        for word in ("forebay_torch_free", f"address={wrong:#x}", "stream=0x1"):
            self.assertIn(word, record.getMessage())

    def test_the_level_of_the_logger_is_that_of_the_library(self):
        with self.assertLogs("forebay", logging.DEBUG) as seen:
            grow()
        self.assertIn(logging.DEBUG, {record.levelno for record in seen.records})
        with forebay.PoolMemoryResource(0).allocate(1024) as buffer, self.assertLogs("forebay", logging.WARNING) as seen:
            grow()
            bad_free(buffer.handle + 512)
        self.assertEqual({record.levelno for record in seen.records}, {logging.WARNING})
        self.logger.setLevel(logging.ERROR)
        with forebay.PoolMemoryResource(0).allocate(1024) as buffer, self.assertNoLogs("forebay"):
            bad_free(buffer.handle + 512)

    def assertNoLogs(self, name):  # Python 3.10 has it
        case = self

        class Nothing(logging.Handler):
            def emit(self, record):
                case.fail(record.getMessage())

            def __enter__(self):
                logging.getLogger(name).addHandler(self)

            def __exit__(self, *_):
                logging.getLogger(name).removeHandler(self)

        return Nothing()

    def test_threads_that_log_and_threads_that_wait_for_the_pool(self):
        # Handlers take locks, configuring takes logging's own, all take the interpreter's: none is taken with one of
        # the pool's.
        out = self.run_program(
            WORLD + "import logging.config\n"
            "seen = []\n"
            "class Keep(logging.Handler):\n"
            "    def emit(self, record):\n"
            "        with list_lock: seen.append(record.levelno)\n"
            "list_lock = threading.Lock()\n"
            "logging.getLogger('forebay').addHandler(Keep())\n"
            "more = {'version': 1, 'incremental': True, 'loggers': {'forebay': {'level': 'DEBUG'}}}\n"
            "logging.config.dictConfig(more)\n"
            "over = threading.Event()\n"
            "def configure():\n"
            "    while not over.is_set(): logging.config.dictConfig(more)\n"
            "def work(number):\n"
            "    resource = forebay.PoolMemoryResource(0)\n"
            "    for turn in range(50):\n"
            "        resource.allocate(number << 20).close()\n"
            "        bad_free()\n"
            "        if turn % 10 == 0: pool.trim()\n"
            "sys.setswitchinterval(1e-4)\n"
            "threads = [threading.Thread(target=work, args=[70 + number], daemon=True) for number in range(4)]\n"
            "other = threading.Thread(target=configure, daemon=True)\n"
            "[thread.start() for thread in [*threads, other]]\n"
            "[thread.join(10) for thread in threads]\n"
            "assert not any(thread.is_alive() for thread in threads), 'they wait for each other'\n"
            "over.set()\n"
            "other.join()\n"
            "assert seen.count(logging.WARNING) == 200 and logging.DEBUG in seen, seen.count(logging.WARNING)\n"
            "buffer.close()\n"
            "print('done')\n"
        )
        self.assertEqual(out, "done\n")

    def test_the_end_of_the_interpreter(self):
        # Off: what the thread does after Python has heard its last would be printed.
        self.run_program(
            "import os\nos.environ['FOREBAY_LOG'] = 'off'\n"
            + WORLD
            + "logging.getLogger('forebay').addHandler(logging.NullHandler())\n"
            "stop = False\n"
            "def work():\n"
            "    while not stop: bad_free()\n"
            "threading.Thread(target=work, daemon=True).start()\n"
            "for _ in range(100): bad_free()\n"
            "stop = True\n"
        )

    def test_a_wrong_value_is_told_with_the_first_pool(self):
        out = self.run_program(
            "import os\n"
            "import forebay\n"
            "os.environ['FOREBAY_LOG'] = 'loud'\n"
            "try:\n"
            "    forebay.Pool.shared()\n"
            "except ValueError as error:\n"
            "    print(error)\n"
            "os.environ['FOREBAY_LOG'] = 'off'\n"
            "forebay.Pool.shared()\n"
        )
        self.assertIn("it takes off, error, warn, info or debug", out)


if __name__ == "__main__":
    unittest.main()
