"""Caches compiled rules of the project's own catalogue for the next start: the paths that each
reads, and its syntax trees.

Only a catalogue without a fault is cached, under a digest of its files, of all code that reads,
checks and compiles them, and of the Python version. A cached condition or text is compiled to
functions at its first use: most texts are never used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import jinja2
from jinja2 import nodes

import unhang_node.base.versions.compare
from unhang.audit.rules.checks import Compiler
from unhang.audit.rules.expression import Expression
from unhang.audit.rules.rules import (
    ANY_DIFFERENCE,
    Rule,
    names_of_groups,
    reads_facts,
    templates_of,
)
from unhang.audit.rules.syntax import Kind, Path, Run
from unhang.core.catalogue.kept_yaml import code_digest
from unhang.core.catalogue.reading import CatalogueFile
from unhang.core.kept_files import digest_of, digest_of_files, keep, read_kept

NAME = f"compiled-rules-{sys.implementation.cache_tag}"
CONDITIONS = ("for_each", "applies", "compare", "within", "when", "severity_of")
_CODE = (
    *("audit/rules", "core/run/documents.py", "core/catalogue", "core/schemas"),
    *("core/kept_files.py", "core/strict_json.py", "core/strict_yaml.py"),
)
_LIST = -1
Names = Callable[[], Mapping[str, Kind]]


def kept_rules(files: Sequence[CatalogueFile], names: Mapping[str, Kind]) -> dict[str, Rule]:
    """Rule id -> rule, {} if none are cached for exactly these files. names: node_names() of their
    tables."""
    key = _key(files)
    data = None if key is None else read_kept(NAME, key)
    if data is None:
        return {}
    kept = json.loads(data)
    paths = [tuple(path) for path in kept["paths"]]
    grow = _grower(kept["kinds"])
    return {
        row["id"]: _rule(row, kept["rules"][row["id"]], names, paths, grow)
        for file in files
        for _, row in file.rows
    }


def keep_rules(files: Sequence[CatalogueFile], rules: Iterable[Rule]) -> None:
    """Caches the rules of a catalogue without faults."""
    key = _key(files)
    if key is None:
        return
    paths, kinds = dict[Path, int](), dict[str, int]()
    rows = {rule.id: _row(rule, paths, kinds) for rule in rules}
    keep(
        NAME,
        key,
        json.dumps(
            {"paths": list(paths), "kinds": list(kinds), "rules": rows}, separators=(",", ":")
        ).encode(),
    )


def _key(files: Sequence[CatalogueFile]) -> bytes | None:
    """The cache's key; None if a file is not the project's own."""
    digests = [file.digest for file in files]
    return digest_of(_code(), *digests) if digests and all(digests) else None


@cache
def _code() -> bytes:
    parser, compare = (
        FilePath(jinja2.__file__).parent,
        FilePath(unhang_node.base.versions.compare.__file__).parent,
    )
    return digest_of(
        code_digest(*_CODE),
        digest_of_files(
            [
                parser / "lexer.py",
                parser / "parser.py",
                parser / "nodes.py",
                *sorted(compare.glob("*.py")),
            ]
        ),
    )


def _row(rule: Rule, paths: dict[Path, int], kinds: dict[str, int]) -> dict[str, Any]:
    def written(expression: Expression) -> list[Any]:
        return [
            numbers(expression.reads),
            sorted(expression.uses),
            json.dumps(_packed(expression.tree(), kinds), separators=(",", ":")),
        ]

    def numbers(reads: Iterable[Path]) -> list[int]:
        return [paths.setdefault(path, len(paths)) for path in sorted(reads)]

    conditions = {
        name: written(one) for name in CONDITIONS if (one := getattr(rule, name)) is not None
    }
    texts = {name: written(one) for name, one in rule.texts.items()}
    return {
        "severity": rule.severity, "conditions": conditions, "texts": texts,
        "where": rule.where_fields,
        "decision_reads": numbers(rule.decision_reads), "text_reads": numbers(rule.text_reads),
    }  # fmt: skip


def _packed(value: Any, kinds: dict[str, int]) -> Any:
    """A syntax tree as lists: [number of the node's kind, its fields], [-1, items] for a list."""
    if isinstance(value, nodes.Node):
        return [
            kinds.setdefault(type(value).__name__, len(kinds)),
            *(_packed(getattr(value, name), kinds) for name in value.fields),
        ]
    if isinstance(value, list):
        return [_LIST, *(_packed(one, kinds) for one in value)]
    assert value is None or isinstance(value, (str, int, float)), (
        f"{value!r} cannot be in a syntax tree, which JSON must be able to hold"
    )
    return value


def _grower(kinds: Sequence[str]) -> Callable[[str], Any]:
    """A function that builds a syntax tree from the lists that _packed made."""
    classes = [getattr(nodes, name) for name in kinds]

    def grown(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        if value[0] == _LIST:
            return [grown(one) for one in value[1:]]
        made = classes[value[0]]
        node = made.__new__(made)
        node.__dict__.update(
            zip(made.fields, [grown(one) for one in value[1:]], strict=True),
            lineno=1,
            environment=None,
        )
        return node

    return lambda text: grown(json.loads(text))


def _rule(
    row: Mapping[str, Any],
    kept: Mapping[str, Any],
    names: Mapping[str, Kind],
    paths: Sequence[Path],
    grow: Callable[[str], Any],
) -> Rule:
    @cache
    def inner() -> Mapping[str, Kind]:
        return (
            names
            if conditions["for_each"] is None
            else {**names, "item": conditions["for_each"].kind.items()}
        )

    @cache
    def outer() -> Mapping[str, Kind]:
        return (
            inner() if row["scope"] == "node" else names_of_groups(inner(), conditions["compare"])
        )

    known: dict[str, Names] = {
        "for_each": lambda: names,
        "applies": inner,
        "compare": inner,
        "within": inner,
        "when": outer,
        "severity_of": outer,
    }
    conditions = {
        name: _late(
            _source(row.get(name.removesuffix("_of"), ANY_DIFFERENCE)),
            kept["conditions"][name],
            known[name],
            paths,
            grow,
        )
        if name in kept["conditions"]
        else None
        for name in CONDITIONS
    }
    texts = {
        name: _late(text, kept["texts"][name], outer, paths, grow, is_template=True)
        for name, text in templates_of(row)
    }
    decision_reads = _paths(kept["decision_reads"], paths)
    return Rule(
        row["id"], dict(row), row["scope"], kept["severity"], conditions["severity_of"],
        conditions["applies"], conditions["for_each"], conditions["when"],
        conditions["compare"], conditions["within"], texts, decision_reads,
        _paths(kept["text_reads"], paths),
        tuple(kept["where"]), reads_facts(decision_reads),
    )  # fmt: skip


def _source(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _paths(numbers: Sequence[int], paths: Sequence[Path]) -> frozenset[Path]:
    return frozenset([paths[number] for number in numbers])


def _late(
    source: str,
    kept: Sequence[Any],
    names: Names,
    paths: Sequence[Path],
    grow: Callable[[str], Any],
    *,
    is_template: bool = False,
) -> Expression:
    """An expression that is compiled at its first use; it was checked when it was cached."""
    reads, uses, text = kept

    def compiled() -> tuple[Kind, Run]:
        compiler = Compiler(names())
        return compiler.template(grow(text)) if is_template else compiler.visit(grow(text))

    return Expression(source, _paths(reads, paths), frozenset(uses), compiled, lambda: grow(text))
