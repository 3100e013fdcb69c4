"""The package's modules: how they import each other, and what their public names say of themselves."""

import ast
import importlib
import inspect
import unittest
from pathlib import Path

from support import forebay

PACKAGE = Path(forebay.__file__).parent
#: What a function may import: a framework, which not everybody has.
FRAMEWORKS = ("cuda", "cupy", "cupy_backends", "numba", "numpy", "rmm", "torch")


def modules() -> dict[str, Path]:
    """The files of the package by their modules' names."""
    found = {}
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]:
        parts = ("forebay", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> list[tuple[str, bool]]:
    """The modules that a module imports when it runs, each with whether a function does it."""
    found = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                visit(other, inside)
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
            base = ".".join(start[: len(start) - node.level + 1]) if node.level else ""
            whole = ".".join(filter(None, (base, node.module)))
            found.extend((f"{whole}.{alias.name}", inside) for alias in node.names)
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(path.read_text()), False)
    return found


class Imports(unittest.TestCase):
    def setUp(self):
        self.modules = {name: path for name, path in modules().items() if path.suffix == ".py"}

    def test_there_is_no_cycle(self):
        edges, known = {}, modules()
        for name, path in self.modules.items():
            named = {target for target, _ in imports(name, path)}
            # A name that is imported is a module, or of the module before the last dot.
            edges[name] = {t if t in known else t.rpartition(".")[0] for t in named} & set(self.modules) - {name}
        done, path = set(), []

        def follow(name):
            if name in path:
                self.fail("a cycle: " + " -> ".join([*path[path.index(name) :], name]))
            if name not in done:
                path.append(name)
                for other in sorted(edges[name]):
                    follow(other)
                done.add(path.pop())

        for name in edges:
            follow(name)
        self.assertGreater(sum(map(len, edges.values())), 80, "the search is broken")

    def test_functions_import_frameworks_alone(self):
        for name, path in self.modules.items():
            for target, inside in imports(name, path):
                if inside:
                    self.assertIn(target.split(".")[0], FRAMEWORKS, f"{name} imports {target} in a function")


class Names(unittest.TestCase):
    def test_public_names_are_of_the_module_they_are_imported_from(self):
        for name in (
            "forebay",
            "forebay.pressure",
            "forebay.cuda_core",
            "forebay.cupy",
            "forebay.numba",
            "forebay.rmm",
            "forebay.torch",
        ):
            try:
                module = importlib.import_module(name)
            except ImportError:  # the framework is not installed
                continue
            for public in module.__all__:
                found = getattr(module, public)
                if isinstance(found, type) or inspect.isroutine(found):
                    self.assertEqual(found.__module__, name, public)
        self.assertTrue(str(forebay.OutOfMemoryError("text").__class__).startswith("<class 'forebay.OutOf"))

    def test_every_public_name_has_a_text(self):
        for public in forebay.__all__:
            found = getattr(forebay, public)
            if not isinstance(found, type) and not inspect.isroutine(found):
                continue
            self.assertTrue(inspect.getdoc(found), public)
            for name, member in vars(found).items() if isinstance(found, type) else ():
                if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
                    self.assertTrue(inspect.getdoc(getattr(found, name)), f"{public}.{name}")

    def test_what_follows_another_library_links_its_page(self):
        for name in forebay.__all__:
            found = getattr(forebay, name)
            if isinstance(found, type) and (name in ("Buffer", "Stream") or "MemoryResource" in name and "Pool" not in name):
                self.assertIn("<https://", found.__doc__, name)

    def test_every_figure_has_a_text(self):
        for name in forebay.PoolStats._fields:
            text = inspect.getdoc(getattr(forebay.PoolStats, name))
            self.assertNotIn("Alias for field", text, name)


if __name__ == "__main__":
    unittest.main()
