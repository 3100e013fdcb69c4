"""The C types of this package are those of the header."""

import ctypes
import re
import unittest

from forebay import _errors, _library, _structs
from support import ROOT, forebay

HEADER = ROOT / "include" / "forebay.h"
C_TYPES = {
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
}


@unittest.skipUnless(HEADER.exists(), f"no {HEADER}: not a source checkout")
class Header(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = re.sub(r"//[^\n]*", "", HEADER.read_text())
        cls.text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)

    def test_structs(self):
        for name, structure in _structs.BY_C_NAME.items():
            found = re.search(rf"typedef struct \{{([^{{}}]*)\}} {name};", self.text)
            with self.subTest(struct=name):
                self.assertIsNotNone(found, "not in the header")
                fields = []
                for line in filter(None, map(str.strip, found[1].split(";"))):
                    kind, star, field, length = re.match(
                        r"(?:const )?(\w+) (\*?)(\w+)(?:\[(\w+)\])?$", line
                    ).groups()
                    if star:
                        size = ctypes.sizeof(ctypes.c_void_p)
                    else:
                        size = ctypes.sizeof(C_TYPES[kind]) * self.number(length)
                    fields.append((field, size))
                ours = [(field[0], ctypes.sizeof(field[1])) for field in structure._fields_]
                self.assertEqual(ours, fields)

    def number(self, length) -> int:
        if length is None or length.isdigit():
            return int(length or 1)
        return int(re.search(rf"#define {length} (\d+)", self.text)[1])

    def test_functions(self):
        for name, (answer, arguments) in _library.declared.items():
            with self.subTest(function=name):
                found = re.search(rf"([\w *]+?)\b{name}\(([^;]*)\);", self.text)
                self.assertIsNotNone(found, "not in the header")
                kinds = [] if found[2].strip() == "void" else re.split(r",\s*", found[2].strip())
                self.assertEqual(len(arguments), len(kinds), kinds)
                for ours, theirs in zip(arguments, kinds):
                    pointer = "*" in theirs or re.search("_fn|_getter|_asker", theirs) is not None or "[" in theirs
                    self.assertEqual(is_pointer(ours), pointer, theirs)
                    if not pointer:
                        word = theirs.split()[0]
                        expected = C_TYPES.get(word, {"size_t": ctypes.c_size_t}.get(word, ctypes.c_uint32))
                        self.assertEqual(ctypes.sizeof(ours), ctypes.sizeof(expected), theirs)
                self.assertEqual(answer is None, found[1].split()[-1:] == ["void"] and "*" not in found[1])

    def test_statuses(self):
        numbers = {name: int(value) for name, value in re.findall(r"FOREBAY_STATUS_(\w+) = (\d+)", self.text)}
        self.assertEqual({status.name: status.value for status in _errors.Status}, numbers)

    def test_numbers(self):
        for prefix, kind in (
            ("RESOURCE_KIND", _structs.ResourceKind),
            ("POOL_SOURCE", _structs.PoolSource),
            ("LOCATION", _structs.Location),
            ("ATTRIBUTE", _structs.Attribute),
        ):
            found = re.findall(rf"FOREBAY_{prefix}_(\w+)(?: = |\s+)(\d+)", self.text)
            self.assertEqual({m.name: m.value for m in kind}, {name: int(value) for name, value in found}, prefix)

    def test_nothing_is_missing(self):
        """Every function declared here is in the library that is used."""
        for name in _library.declared:
            self.assertTrue(forebay.address_of(name), name)
        self.assertTrue(forebay.address_of("forebay_dlpack_capsule_delete"))


def is_pointer(kind) -> bool:
    return kind in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(kind, "contents")


if __name__ == "__main__":
    unittest.main()
