"""The extension declares what the header does: `python/core/src/abi.rs` is made from `include/forebay.h`.

``BLESS=1 python3 tests/python/test_header.py`` rewrites it.
"""

import os
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "forebay.h"
DECLARATIONS = ROOT / "python" / "core" / "src" / "abi.rs"

HEAD = """\
//! What `include/forebay.h` declares. Made from it: `BLESS=1 python3 tests/python/test_header.py`; do not edit.

use std::ffi::{c_char, c_int, c_void};
"""
TYPES = {
    "char": "c_char",
    "double": "f64",
    "int": "c_int",
    "int32_t": "i32",
    "ptrdiff_t": "isize",
    "size_t": "usize",
    "uint32_t": "u32",
    "uint64_t": "u64",
    "uint8_t": "u8",
    "void": "c_void",
}


def generate() -> str:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    text = text[text.index("struct DLManagedTensor;") :]
    numbers = re.findall(r"^#define (FOREBAY_\w+) (\d+)$", text, re.MULTILINE)
    numbers += re.findall(r"\b(FOREBAY_\w+) = (\d+)", text)
    enums = re.findall(r"typedef enum \{[^}]*\} (\w+);", text)
    structs = re.findall(r"typedef struct \{([^}]*)\} (\w+);", text)
    opaque = re.findall(r"struct (\w+);", text) + re.findall(r"typedef struct (\w+) \w+;", text)
    callbacks = re.findall(r"typedef ([\w ]+?[ *]*)\(\*(\w+)\)\(([^)]*)\);", text)
    rest = re.sub(r"typedef [^{;]*(\{[^}]*\})?[^;]*;|^#.*$", "", text, flags=re.MULTILINE)
    functions = re.findall(r"((?:const )?\w+ \*?)(forebay_\w+)\(([^)]*)\);", rest)
    lines = [HEAD]
    lines += [f"pub const {name}: u32 = {value};" for name, value in numbers]
    lines += ["", "/// Every number, for Python.", "pub const NUMBERS: &[(&str, u32)] = &["]
    lines += [f'    ("{name.removeprefix("FOREBAY_")}", {name}),' for name, _ in numbers] + ["];", ""]
    lines += [f"pub type {name} = u32;" for name in enums] + [""]
    for name in dict.fromkeys(opaque):
        lines += ["#[repr(C)]", f"pub struct {name} {{", "    _private: [u8; 0],", "}", ""]
    for fields, name in structs:
        lines += ["#[repr(C)]", "#[derive(Clone, Copy)]", f"pub struct {name} {{"]
        lines += [f"    pub {field}," for field in map(declared, statements(fields))] + ["}", ""]
    for answer, name, arguments in callbacks:
        lines += [f'pub type {name} = Option<unsafe extern "C" fn({parameters(arguments)}){returned(answer)}>;']
    lines += ["", 'unsafe extern "C" {']
    lines += [f"    pub fn {name}({parameters(arguments)}){returned(answer)};" for answer, name, arguments in functions]
    return "\n".join([*lines, "}", ""])


def statements(text: str) -> list[str]:
    return [statement.strip() for statement in text.split(";") if statement.strip()]


def declared(text: str) -> str:
    """A C declaration as Rust's."""
    const, kind, stars, name, length = re.fullmatch(
        r"(const )?(?:struct )?(\w+) ([*\w ]*?) ?(\w+)(?:\[(\w+)\])?", text
    ).groups()
    rust = TYPES.get(kind, kind)
    for pointer in re.findall(r"\*(?: ?const)?", stars):
        # `const` before the type is of what the first star points to; behind a star, of what the next one points to.
        rust, const = f"*{'const' if const else 'mut'} {rust}", pointer.removeprefix("*")
    return f"{name}: [{rust}; {length}]" if length else f"{name}: {rust}"


def parameters(text: str) -> str:
    text = " ".join(text.split())
    return "" if text == "void" else ", ".join(map(declared, text.split(", ")))


def returned(text: str) -> str:
    text = " ".join(text.split())
    return "" if text == "void" else " -> " + declared(text.replace(" *", " * ").strip() + " answer").partition(": ")[2]


@unittest.skipUnless(HEADER.exists(), f"no {HEADER}: not a source checkout")
class Header(unittest.TestCase):
    def test_the_declarations_are_the_generated_ones(self):
        self.assertEqual(DECLARATIONS.read_text(), generate(), "BLESS=1 python3 tests/python/test_header.py rewrites them")

    def test_nothing_is_left_out(self):
        text = HEADER.read_text()
        names = set(re.findall(r"^[\w ]+\*?(forebay_\w+)\(", text, re.MULTILINE))
        self.assertEqual(set(re.findall(r"pub fn (\w+)", DECLARATIONS.read_text())), names)
        self.assertGreater(len(names), 100)


if __name__ == "__main__":
    if os.environ.get("BLESS"):
        DECLARATIONS.write_text(generate())
    unittest.main()
