"""What the tests share. They run on the host driver unless FOREBAY_DRIVER says otherwise."""

import importlib.util
import os
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

os.environ.setdefault("FOREBAY_DRIVER", "host")
if importlib.util.find_spec("forebay") is None:
    sys.path.insert(0, str(ROOT / "python"))

import forebay  # noqa: E402  (it must be found first)

MIB = 1 << 20


def numpy_or_skip():
    """NumPy, or a skipped test that says why."""
    try:
        import numpy
    except ImportError:
        raise unittest.SkipTest("NumPy is not installed") from None
    return numpy


def content(buffer: forebay.Buffer, length: int = 0) -> bytes:
    """The first bytes of a buffer, wherever it lies; all of them for a length of 0."""
    if not buffer.is_host_accessible:
        with forebay.PinnedMemoryResource().allocate(buffer.size) as copy:
            copy.copy_from(buffer, stream=None)
            return content(copy, length)
    view = buffer.as_memoryview()
    return bytes(view[: length or len(view)])


class Case(unittest.TestCase):
    """Checks in each test that the shared pool ends as it began."""

    def setUp(self) -> None:
        self.live = forebay.Pool.shared().stats().live

    def tearDown(self) -> None:
        if self._outcome.success:
            self.assertEqual(forebay.Pool.shared().stats().live, self.live, "live bytes of the shared pool")

    def two_devices(self, text: str) -> None:
        """Runs a program on a host driver with two devices."""
        if forebay.Pool.shared().driver != "host":
            self.skipTest("the host driver alone can be told to have two devices")
        head = "import os\nos.environ['FOREBAY_HOST_DEVICES'] = '2'\nimport dataclasses, forebay\n"
        self.run_program(head + textwrap.dedent(text))

    def run_program(self, text: str) -> str:
        """Runs a program of its own with this package and library; it must end well and say nothing on stderr. Its output."""
        package = os.path.dirname(os.path.dirname(forebay.__file__))
        more = {"PYTHONPATH": package, "FOREBAY_LIBRARY": forebay.library_path, "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, env={**os.environ, **more}
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def refused(self, kind, *words: str):
        """As assertRaises, and the text must have these words."""
        return _Refused(self, kind, words)


class _Refused:
    def __init__(self, case, kind, words):
        self.case, self.kind, self.words = case, kind, words
        self.context = case.assertRaises(kind)

    def __enter__(self):
        return self.context.__enter__()

    def __exit__(self, *raised):
        answer = self.context.__exit__(*raised)
        if not answer:  # another exception, which goes on
            return answer
        text = str(self.context.exception)
        self.case.assertTrue(text, "an error without a text")
        for word in self.words:
            self.case.assertIn(word, text)
        return answer
