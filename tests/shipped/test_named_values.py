"""A function that returns several different things returns them by name, and its own name says what
it returns."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path for folder in ("tools/unhang", "module_utils") for path in (PROJECT / folder).rglob("*.py")
)
MOST_PARTS = 3
SAY_NOTHING = {"found", "one", "told", "_known"}


def unnamed_tuples(annotation):
    """The plain tuples of more than three different parts in an annotation."""
    for node in ast.walk(annotation):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == "tuple"
            and isinstance(node.slice, ast.Tuple)
        ):
            parts = [ast.unparse(part) for part in node.slice.elts]
            if len(parts) > MOST_PARTS and len(set(parts)) > 1:
                yield ast.unparse(node)


def faults_of(source):
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    for function in functions:
        if function.name in SAY_NOTHING:
            yield f"{function.name}: expected a name that says what it returns"
        if function.returns is not None:
            yield from (
                f"{function.name}: expected named fields, found {one}"
                for one in unnamed_tuples(function.returns)
            )


def test_no_function_returns_a_plain_tuple_of_four_different_parts_or_is_called_found():
    assert {
        str(path.relative_to(PROJECT)): faults
        for path in FILES
        if (faults := list(faults_of(path.read_text())))
    } == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("def a() -> tuple[int, str, bool, float]: ...", 1),
        ("def a() -> list[tuple[int, str, bool, float]] | None: ...", 1),
        ("def a() -> tuple[int, int, int, int]: ...", 0),
        ("def a() -> tuple[int, str, bool]: ...", 0),
        ("def found() -> int: ...", 1),
        ("def outer():\n    def _known(): ...", 1),
    ],
)
def test_such_a_function_would_be_seen(source, count):
    assert len(list(faults_of(source))) == count
