"""What a docstring or a comment of the product names is there, its words are the field's, and a
function's name says what it returns."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
PRODUCT = sorted(
    path
    for top in ("tools", "module_utils", "library", "plugins")
    for path in (HOME / top).rglob("*.py")
)
TOPS = (
    "awx",
    "docs",
    "inventory/example",
    "library",
    "module_utils",
    "playbooks",
    "plugins",
    "roles",
    "tests",
    "tools",
)
PACKAGES = {
    "unhang": HOME / "tools" / "unhang",
    "unhang_node": HOME / "module_utils" / "unhang_node",
}
FILE = re.compile(r"(?<![\w/.<-])[\w/-]*\w\.(?:py|md|ya?ml|sh)\b")
DOTTED = re.compile(r"(?<![\w/.-])unhang(?:_node)?(?:\.[a-z_]+)+\b(?![/(])")
# A line reports or shows, a job hangs, a rank is somewhere. Allowed: to tell apart, to stand for,
# out or alone, a stand-in, and names of fields.
OF_THIS_HOUSE = re.compile(
    r"\b((?:told|tells?)(?![^.;}]{0,50}\bapart|})|stands?(?!\s(?:for|out|alone)|[:-])|stood)\b"
)
# of Python, of packages, of a user
OF_OTHERS = {"pynvml.py", "base64.py", "torch/version.py", "train.py"}
# by make collection
GENERATED = {"galaxy.yml", "changelogs/changelog.yaml", "meta/runtime.yml"}

# They say that something was found, kept or sorted, and not what. Methods such as `alerts.of(tick)`
# are read with their object.
SAYS_NOTHING = {
    "found",
    "one",
    "why",
    "place",
    "places",
    "kept",
    "sorted",
    "of",
    "it",
    "these",
    "those",
    "all",
    "get",
    "data",
    "info",
}
ALLOWED = {
    "module_utils/unhang_node/change/drain/hook.py: _found",  # after "expected", as everywhere
    "module_utils/unhang_node/facts/sections/processes.py: _place",
    "tools/unhang/audit/ways/starter.py: kept",
    # called as phrases.places(fold), beside phrases.hosts
    "tools/unhang/audit/report/phrases.py: places",
}


def shown(path: Path) -> str:
    return str(path.relative_to(HOME))


def documents(text: str) -> Iterator[str]:
    """The docstrings and comments of a file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
    yield from (
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    )


def documented(pattern: re.Pattern[str]) -> set[tuple[str, str]]:
    """(file, name) of each name that docstrings and comments have. Doc fragments are named with
    dots too."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in PRODUCT
        if path.parent.name != "doc_fragments"
    }
    return {
        (shown(path), name)
        for path, text in texts.items()
        if pattern.search(text)
        for part in documents(text)
        for name in pattern.findall(part)
    }


def is_module(name: str) -> bool:
    """Whether the dotted name is a module, a package, or something in a module."""
    top, _, below = name.partition(".")
    if below.startswith("ops"):  # the collection
        return True
    place = PACKAGES[top] / below.replace(".", "/")
    inside = place.parent.with_suffix(".py")
    return (
        place.is_dir()
        or place.with_suffix(".py").is_file()
        or (inside.is_file() and re.search(rf"\b{place.name}\b", inside.read_text()) is not None)
    )


def test_files_that_the_product_documents_are_there():
    files = [*HOME.glob("*.*"), *(path for top in TOPS for path in (HOME / top).rglob("*.*"))]
    there = {
        "/".join(path.parts[start:])
        for path in files
        for start in range(len(HOME.parts), len(path.parts))
    }
    named = documented(FILE)
    assert len(named) > 50
    assert (
        sorted((path, name) for path, name in named if name not in there | OF_OTHERS | GENERATED)
        == []
    )


def test_modules_that_the_product_documents_are_there():
    named = documented(DOTTED)
    assert named
    assert sorted((path, name) for path, name in named if not is_module(name)) == []


def test_the_product_is_documented_in_words_of_the_field():
    assert documented(OF_THIS_HOUSE) == set()


def test_a_function_is_named_after_what_it_returns():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PRODUCT}
    functions = [
        (path, node.name)
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    ]
    vague = {
        f"{shown(path)}: {name}" for path, name in functions if name.strip("_") in SAYS_NOTHING
    }
    assert vague <= ALLOWED, "name what it returns"
