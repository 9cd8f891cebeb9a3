"""How much Python a task makes its author read, in tokens (names, keywords, numbers and strings):
the static import closure of each command, the whole product and its tests, against the ceilings of
weight.yaml. A commit that makes something lighter lowers its ceiling."""

from __future__ import annotations

import ast
import functools
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

HOME = Path(__file__).resolve().parents[2]
CEILINGS = Path(__file__).with_name("weight.yaml")
NOW = yaml.safe_load(CEILINGS.read_text(encoding="utf-8"))
PRODUCT = ("tools", "module_utils", "plugins", "library")
COUNTED = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
FSTRING = getattr(tokenize, "FSTRING_START", None), getattr(tokenize, "FSTRING_END", None)
CORE_MAY_IMPORT = {"base"}  # of unhang_node: not what a node is (facts), nor job or change


@functools.cache
def python_files(folder: str) -> list[Path]:
    return [one for one in sorted((HOME / folder).rglob("*.py")) if not one.is_symlink()]


@functools.cache
def tokens(path: Path) -> int:
    found = depth = 0
    with path.open("rb") as content:
        for token in tokenize.tokenize(content.readline):
            depth -= token.type == FSTRING[1]
            found += depth == 0 and token.type in (*COUNTED, FSTRING[0])
            depth += token.type == FSTRING[0]
    return found


@functools.cache
def modules() -> dict[str, Path]:
    """{dotted name: file} of the product."""
    paths = {path: HOME / root for root in PRODUCT for path in python_files(root)}
    named = {
        ".".join(path.relative_to(top).with_suffix("").parts): path for path, top in paths.items()
    }
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def names_imported(path: Path) -> Iterator[str]:
    root = next(HOME / root for root in PRODUCT if path.is_relative_to(HOME / root))
    package = path.parent.relative_to(root).parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            base = base.removeprefix("ansible.module_utils.")
            yield from (base, *(f"{base}.{one.name}" for one in node.names))


@functools.cache
def imported(path: Path) -> set[Path]:
    return {modules()[name] for name in names_imported(path) if name in modules()}


def closure(start: Path) -> set[Path]:
    seen, left = set(), {start}
    while left:
        seen |= left
        left = {other for one in left for other in imported(one)} - seen
    return seen


def weight(name: str) -> int:
    if name == "whole":
        files = {path for root in PRODUCT for path in python_files(root)}
    elif name == "tests":
        files = set(python_files("tests"))
    else:
        (start,) = (HOME / "tools/unhang").glob(f"*/commands/{name}.py")
        files = closure(start)
    return sum(map(tokens, files))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOW["ceilings"])
def test_nothing_is_heavier_than_its_ceiling(name):
    assert weight(name) <= NOW["ceilings"][name]


@pytest.mark.slow
def test_a_ceiling_only_falls():
    """But where a decision page says why it rose."""
    commits = subprocess.run(
        ["git", "log", "--format=%H", "--", str(CEILINGS)],
        cwd=HOME, capture_output=True, text=True, timeout=60, check=True,
    ).stdout.split()  # fmt: skip
    raised = NOW["raised"] or {}
    for page in raised.values():
        assert (HOME / "docs" / "decisions" / page).is_file()
    for commit in commits:
        shown = subprocess.run(
            ["git", "show", f"{commit}:{CEILINGS.relative_to(HOME)}"],
            cwd=HOME, capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
        then = yaml.safe_load(shown)
        since = dict(raised.items() - (then["raised"] or {}).items())  # rose after that commit
        assert {
            name: (before, NOW["ceilings"].get(name))
            for name, before in then["ceilings"].items()
            if name not in since and NOW["ceilings"].get(name, before + 1) > before
        } == {}


def test_core_imports_nothing_of_what_runs_on_a_node_but_its_base():
    found = {
        (path.name, name)
        for path in python_files("tools/unhang/core")
        for name in names_imported(path)
        if name.startswith("unhang_node.") and name.split(".")[1] not in CORE_MAY_IMPORT
    }
    assert found == set()
