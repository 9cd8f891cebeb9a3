"""The catalogue as the judge uses it: rules compiled, tables by key, each fault with its file and
line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from unhang.core.catalogue.reading import CatalogueFile, collect_tables
from unhang.core.catalogue.rule_files import check_ids, own_folders, read_folders
from unhang.core.run.documents import InvalidNode
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.reading import nearest
from unhang.core.schemas.shapes import fact_shapes
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.expression import Kind
from unhang.judge.rules.rules import Rule, RuleError, compile_rule, node_names
from unhang_node.base.versions.compare import check_version

MAX_RULES = 5000


@dataclass(frozen=True)
class Catalogue:
    """Compiled rules and tables. faults: one line each, with file and place; rows with a fault are
    omitted. entries: known problems that no rule can decide, as rows of the schema's `entry`."""

    rules: tuple[Rule, ...] = ()
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    table_rows: tuple[dict[str, Any], ...] = ()
    faults: tuple[str, ...] = ()
    entries: tuple[dict[str, Any], ...] = ()


def load_catalogue(folders: Iterable[Path] = (), *, built_in: bool = True) -> Catalogue:
    """Reads every *.yml and *.yaml of the folders, the project's own first, which a process reads
    once. Raises nothing: faults are in the result."""
    own, folders = tuple(own_folders()) if built_in else (), tuple(folders)
    if not own:
        faults: list[str] = []
        return _compile(list(read_folders(folders, faults)), faults)
    return _load_with_own(own, folders) if folders else _load_own(own)


@lru_cache(maxsize=1)
def _read_own(folders: tuple[Path, ...]) -> tuple[tuple[CatalogueFile, ...], tuple[str, ...]]:
    """(files, faults)."""
    faults: list[str] = []
    return tuple(read_folders(folders, faults)), tuple(faults)


@lru_cache(maxsize=1)
def _load_own(folders: tuple[Path, ...]) -> Catalogue:
    files, faults = _read_own(folders)
    return _compile(list(files), list(faults))


def _load_with_own(own: tuple[Path, ...], folders: tuple[Path, ...]) -> Catalogue:
    """The project's own rules and a user's folders; the own rules are compiled again only if a
    user's table may change their meaning."""
    files, own_faults = _read_own(own)
    faults = list(own_faults)
    more = list(read_folders(folders, faults))
    compiled = (
        {}
        if any(file.tables for file in more)
        else {rule.id: rule for rule in _load_own(own).rules}
    )
    return _compile([*files, *more], faults, compiled)


def _compile(
    files: list[CatalogueFile], faults: list[str], compiled: Mapping[str, Rule] | None = None
) -> Catalogue:
    """Compiles the rows of files. compiled: compiled rules of the first files, by id; an id belongs
    to the first row that has it."""
    tables, table_rows = collect_tables(files, faults, check_version)
    rules: list[Rule] = []
    entries = []
    names = node_names(tables)
    for file, kind, place, row in check_ids(files, faults):
        if kind == "entries":
            entries.append(row)
            continue
        found = (compiled or {}).get(row["id"]) or _rule(file, place, row, tables, names)
        if isinstance(found, Rule):
            rules.append(found)
        else:
            faults += found
    if len(rules) > MAX_RULES:
        faults.append(f"{len(rules)} rules, at most {MAX_RULES} are allowed")
    return Catalogue(tuple(rules), tables, tuple(table_rows), tuple(faults), tuple(entries))


def _rule(
    file: CatalogueFile,
    place: int,
    row: dict[str, Any],
    tables: Mapping[str, Any],
    names: Mapping[str, Kind],
) -> Rule | list[str]:
    try:
        rule = compile_rule(row, tables, names)
    except RuleError as problem:
        return [
            f"{file.at('rules', place, *problem.field.split('.'))}: rule {row['id']}:"
            f" {problem.field}: {problem}"
        ]
    faults = [
        f"{file.at('rules', place, 'remedy', 'policy', *one.path)}: rule {rule.id}:"
        f" {inside}: {one.message}"
        for one in check_schema(row["remedy"].get("policy", {}), "policy-1")
        if (inside := ".".join(["remedy.policy", *map(str, one.path)])) not in rule.texts
    ]
    faults += _examples(file, place, rule)
    return faults or rule


def _examples(file: CatalogueFile, place: int, rule: Rule) -> Iterator[str]:
    """The faults of a rule's examples, each once."""
    shown: set[str] = set()
    for key in ("match", "near_miss"):
        for number, example in enumerate(rule.row["examples"][key]):
            fragments = example if rule.scope != "node" and isinstance(example, list) else [example]
            for fragment in fragments:
                fault = _fragment_fault(fragment, rule.scope)
                if fault and fault not in shown:
                    shown.add(fault)
                    yield (
                        f"{file.at('rules', place, 'examples', key, number)}: rule {rule.id}:"
                        f" examples.{key}[{number}]: {fault}"
                    )


def _fragment_fault(fragment: Any, scope: str) -> str | None:
    if not isinstance(fragment, dict):
        return "this must be a map of sections" + (
            "" if scope == "node" else ", or a list of such maps"
        )
    try:
        example_node(fragment)
    except InvalidNode as problem:
        name = str(problem).rsplit(" ", 1)[-1]
        return f"{problem}{nearest(name, fact_shapes()) if 'unknown field' in str(problem) else ''}"
    for one in check_schema(fragment.get("policy", {}), "policy-1"):
        return f"policy.{'.'.join(str(part) for part in one.path)}: {one.message}"
    return None
