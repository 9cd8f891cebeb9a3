"""Programs that a bench starts with `python -c` import what exists: no linter reads them, and only
a machine with GPUs runs them."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

BENCHES = (Path(__file__).resolve().parents[2] / "bench").rglob("*.py")


def exists(module: str, name: str) -> bool:
    """Whether the module has the name, as an attribute or as a module below it."""
    has = hasattr(importlib.import_module(module), name)
    return has or importlib.util.find_spec(f"{module}.{name}") is not None


def test_each_import_in_a_program_text_names_what_exists():
    imports = [
        (module, name.split()[0])
        for path in BENCHES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for module, names in re.findall(r"from (unhang[\w.]*) import ([\w, ]+)", node.value)
        for name in names.split(", ")
    ]
    assert len(imports) >= 4
    assert [found for found in imports if not exists(*found)] == []
