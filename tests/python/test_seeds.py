"""Every class, method, parameter and attribute of the documents is here, and answers."""

import inspect
import os
import re
import unittest
from pathlib import Path

from seeds import DOCUMENTS, POOL_ATTRIBUTES, REFERRED, VIRTUAL_DEFAULTS
from support import ROOT, Case, forebay

FOLDER = Path(os.environ.get("FOREBAY_SEEDS", ROOT / "shared" / "seeds"))


def parameters(function) -> list:
    """The names of a callable's parameters without self and cls."""
    found = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return found


def alive(document):
    """An object of the document's class."""
    if document["class"] == "Buffer":
        return forebay.PinnedMemoryResource().allocate(64)
    return getattr(forebay, document["class"])()


class Package(Case):
    def test_parameters(self):
        for number, document in DOCUMENTS.items():
            kind = getattr(forebay, document["class"])
            if document["parameters"] is not None:
                self.assertEqual(parameters(kind.__init__), document["parameters"], number)
            for name, expected in document["methods"].items():
                with self.subTest(document=number, method=name):
                    signature = inspect.signature(getattr(kind, name))
                    names = [n for n in signature.parameters if n not in ("self", "cls")]
                    plain = [n for n in expected if n != "*"]
                    # Newer spellings may add parameters behind the document's.
                    self.assertEqual(names[: len(plain)], plain)
                    only = plain[expected.index("*") :] if "*" in expected else []
                    for parameter in plain:
                        kind_of = signature.parameters[parameter].kind
                        keyword = kind_of is inspect.Parameter.KEYWORD_ONLY
                        self.assertEqual(keyword, parameter in only, parameter)

    def test_attributes_answer(self):
        for number, document in DOCUMENTS.items():
            instance = alive(document)
            for name, kind in document["attributes"].items():
                with self.subTest(document=number, attribute=name):
                    kind = getattr(forebay, kind) if isinstance(kind, str) else kind
                    self.assertIsInstance(getattr(instance, name), kind)

    def test_pool_attributes(self):
        attributes = forebay.PinnedMemoryResource({}).attributes
        for name in POOL_ATTRIBUTES:
            self.assertIsInstance(getattr(attributes, name), int, name)

    def test_defaults_of_virtual_memory(self):
        options = forebay.VirtualMemoryResourceOptions()
        self.assertEqual({name: getattr(options, name) for name in VIRTUAL_DEFAULTS}, VIRTUAL_DEFAULTS)
        self.assertIs(options.allocation_type, forebay.VirtualMemoryAllocationType.PINNED)
        self.assertIs(options.self_access, forebay.VirtualMemoryAccessType.READ_WRITE)

    def test_what_they_refer_to(self):
        for name, expected in REFERRED.items():
            self.assertEqual(parameters(getattr(forebay, name)), expected, name)

    def test_both_spellings(self):
        resource = forebay.DeviceMemoryResource(0, forebay.DeviceMemoryResourceOptions(ipc_enabled=True))
        self.assertIs(resource.allocation_handle, resource.get_allocation_handle())
        buffer = resource.allocate(64, stream=None)
        self.assertEqual(buffer.ipc_descriptor, buffer.get_ipc_descriptor())
        resource.allocate(64, None).close(None)
        buffer.close(stream=None)

    def test_words_are_strings(self):
        for kind in ("Allocation", "Location", "Handle", "Granularity", "Access"):
            for member in getattr(forebay, f"VirtualMemory{kind}Type"):
                self.assertEqual(str(member), member.value)
                self.assertIsInstance(member, str)


@unittest.skipUnless(FOLDER.is_dir(), f"the documents are not at {FOLDER}; FOREBAY_SEEDS may name their folder")
class Documents(unittest.TestCase):
    """The table is what the documents say."""

    def text(self, number: str) -> str:
        (file,) = FOLDER.glob(f"{number}_*")
        return file.read_text()

    def names(self, number: str, pattern: str) -> set:
        return set(re.findall(pattern, self.text(number), re.MULTILINE)) - {"class", "__init__"}

    def test_000(self):
        document = DOCUMENTS["000"]
        names = self.names("000", r"^- (?:classmethod |static )?(\w+)(?:#|\(|\(self\)#)")
        # Lists of parameters have the same form; their names are no members.
        names -= {"self", "size", "options", "ptr", "uuid", "cls", "alloc_handle"} - set(document["attributes"])
        self.assertEqual(names, set(document["methods"]) | set(document["attributes"]))

    def test_001(self):
        document = DOCUMENTS["001"]
        methods = self.names("001", r"^(?:classmethod |static )?(\w+)\(")
        self.assertEqual(methods, set(document["methods"]))
        self.assertEqual(self.names("001", r"^(\w+)#$"), set(document["attributes"]))

    def test_004(self):
        self.assertEqual(self.names("004", r"^(\w+)#$"), set(DOCUMENTS["004"]["attributes"]))
        order = re.findall(r"^(\w+): .* = .*,$", self.text("004"), re.MULTILINE)
        self.assertEqual(order, DOCUMENTS["004"]["parameters"])


if __name__ == "__main__":
    unittest.main()
