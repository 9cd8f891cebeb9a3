"""Programs that a bench starts with `python -c` import what exists: no linter reads them, and only
a machine with GPUs runs them."""

import ast
import importlib
import importlib.util
from pathlib import Path

BENCHES = sorted((Path(__file__).resolve().parents[2] / "bench").glob("*.py"))


def imports_of(text: str) -> list[tuple[str, str]]:
    """(module, name) of each `from unhang… import name` line of a program text."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("from unhang")]
    found = [
        statement
        for line in lines
        for statement in ast.parse(line).body
        if isinstance(statement, ast.ImportFrom)
    ]
    return [
        (statement.module or "", alias.name) for statement in found for alias in statement.names
    ]


def exists(module: str, name: str) -> bool:
    """Whether the module has the name, as an attribute or as a module below it."""
    if name == "*" or hasattr(importlib.import_module(module), name):
        return bool(importlib.import_module(module))
    return importlib.util.find_spec(f"{module}.{name}") is not None


def test_each_import_in_a_program_text_names_what_exists():
    texts = [
        node.value
        for path in BENCHES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    imports = [found for text in texts for found in imports_of(text)]
    assert len(imports) >= 2
    assert [found for found in imports if not exists(*found)] == []
