"""The catalogue: rules, tables and entries as YAML rows, loaded strictly, each fault told with its file and line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.catalogue.tables import Table, date_fault, row_faults
from unhang.judge.documents import InvalidNode
from unhang.judge.examples import example_node
from unhang.judge.expression import Kind
from unhang.judge.rules import Rule, RuleError, compile_rule, node_names
from unhang.judge.schema_check import Fault, check_schema
from unhang.judge.shapes import fact_shapes, nearest, read_schema
from unhang.strict_yaml import Place, YamlFault, load_yaml

BUILT_IN = Path(__file__).resolve().parent
OWN_FOLDERS = ("rules", "tables", "entries")  # other folders beside them are not the judge's
MAX_FILES = 500
MAX_RULES = 5000


@dataclass(frozen=True)
class Catalogue:
    """Compiled rules and tables. faults: one line each, with file and place; rows that are at fault are left out.

    entries: what no rule can decide, as rows of the schema's `entry`.
    """

    rules: tuple[Rule, ...] = ()
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    table_rows: tuple[dict[str, Any], ...] = ()
    faults: tuple[str, ...] = ()
    entries: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class _File:
    path: Path
    rows: list[tuple[int, dict[str, Any]]]  # (place in the file, row)
    entries: list[tuple[int, dict[str, Any]]]
    tables: dict[str, dict[str, Any]]
    places: Mapping[tuple, Place]

    def at(self, *path: object) -> str:
        """file:line of the nearest thing that has a line."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return f"{self.path}:{self.places[path[:end]].line}"
        return str(self.path)


def load_catalogue(folders: Iterable[Path] = (), *, built_in: bool = True) -> Catalogue:
    """Reads every *.yml and *.yaml of the folders, the project's own first. Reads files, raises nothing: faults are in the answer."""
    faults: list[str] = []
    files = list(_files([*(_own_folders() if built_in else ()), *folders], faults))
    tables, table_rows = _tables(files, faults)
    rules: dict[str, Rule] = {}
    seen: dict[str, str] = {}
    names = node_names(tables)
    for file in files:
        for place, row in file.rows:
            if not _is_new(file, "rules", place, row, seen, faults):
                continue
            found = _rule(file, place, row, tables, names)
            if isinstance(found, Rule):
                rules[found.id] = found
            else:
                faults += found
    entries = [row for file in files for place, row in file.entries if _is_new(file, "entries", place, row, seen, faults)]
    if len(rules) > MAX_RULES:
        faults.append(f"{len(rules)} rules, at most {MAX_RULES} are allowed")
    faults += [fault for file in files for fault in _also(file, seen)]
    return Catalogue(tuple(rules.values()), tables, tuple(table_rows), tuple(faults), tuple(entries))


def _own_folders() -> list[Path]:
    return [folder for folder in (BUILT_IN / name for name in OWN_FOLDERS) if any(folder.glob("**/*.yml"))]


def _is_new(file: _File, kind: str, place: int, row: Mapping[str, Any], seen: dict[str, str], faults: list[str]) -> bool:
    """Whether an id of a rule or an entry is used for the first time."""
    if row["id"] in seen:
        faults.append(f"{file.at(kind, place, 'id')}: the id {row['id']} is already used at {seen[row['id']]}")
        return False
    seen[row["id"]] = file.at(kind, place)
    return True


def _also(file: _File, ids: Mapping[str, str]) -> Iterator[str]:
    """Ids in `also` that no rule has."""
    for place, row in file.rows:
        for number, other in enumerate(row.get("also", ())):
            if other not in ids:
                yield f"{file.at('rules', place, 'also', number)}: rule {row['id']}: also: there is no rule {other}{nearest(other, ids)}"


def _files(folders: list[Path], faults: list[str]) -> Iterator[_File]:
    for folder in folders:
        if not folder.is_dir():
            faults.append(f"{folder}: no such folder of rules")
            continue
        paths = sorted(path for path in folder.rglob("*.y*ml") if path.suffix in (".yml", ".yaml"))
        if not paths and folder.parent != BUILT_IN:
            faults.append(f"{folder}: holds no .yml file")
        if len(paths) > MAX_FILES:
            faults.append(f"{folder}: {len(paths)} files, at most {MAX_FILES} are read")
        for path in paths[:MAX_FILES]:
            yield from _file(path, faults)


def _file(path: Path, faults: list[str]) -> Iterator[_File]:
    try:
        content, places = load_yaml(path)
    except YamlFault as problem:
        faults.append(str(problem))
        return
    file = _File(path, [], [], {}, places)
    found = list(check_schema(content, read_schema("rule-1")))
    faults += [f"{file.at(*one.path)}: {_named(content, one)}" for one in found]
    if any(len(one.path) < 2 for one in found):
        return  # the file itself is at fault, not one of its rows
    bad = {one.path[:2] for one in found}
    file.rows.extend((place, row) for place, row in enumerate(content.get("rules", ())) if ("rules", place) not in bad)
    file.entries.extend((place, row) for place, row in enumerate(content.get("entries", ())) if ("entries", place) not in bad)
    file.tables.update({name: table for name, table in content.get("tables", {}).items() if ("tables", name) not in bad})
    yield file


def _named(content: Any, fault: Fault) -> str:
    """A fault with the id of the rule that it is in."""
    if len(fault.path) >= 2 and fault.path[0] in ("rules", "entries"):
        row = content[fault.path[0]][fault.path[1]]
        inside = ".".join(str(part) for part in fault.path[2:])
        name = row.get("id") if isinstance(row, dict) else None
        kind = "rule" if fault.path[0] == "rules" else "entry"
        return ": ".join(part for part in (f"{kind} {name if isinstance(name, str) else fault.path[1]}", inside, fault.message) if part)
    return ": ".join(part for part in (".".join(str(part) for part in fault.path), fault.message) if part)


def _tables(files: list[_File], faults: list[str]) -> tuple[dict[str, Table], list[dict[str, Any]]]:
    tables: dict[str, Table] = {}
    rows: list[dict[str, Any]] = []
    for file in files:
        for name, table in file.tables.items():
            if name in tables:
                faults.append(f"{file.at('tables', name)}: the table {name} is already there at {tables[name].place}")
                continue
            tables[name] = Table(table, file.at("tables", name))
            if "as_of" in table and (fault := date_fault(table["as_of"])):
                faults.append(f"{file.at('tables', name, 'as_of')}: table {name}: as_of: {fault}")
            for place, row in enumerate(table["rows"]):
                found = _table_row(name, table, row, tables[name], rows)
                faults += [f"{file.at('tables', name, 'rows', place, *at)}: table {name}: {fault}" for at, fault in found]
    return tables, rows


def _table_row(name: str, table: Mapping[str, Any], row: dict[str, Any], keyed: Table, rows: list[dict[str, Any]]) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with a row, with its place inside the row; a row without fault is added to both."""
    key = row.get(table["key"])
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        return [((), f"the key {table['key']} is missing, or neither text nor number")]
    if str(key) in keyed:
        return [((table["key"],), f"{key} is there twice")]
    sources = row.get("sources") or ([{"url": row["source"], "says": ""}] if row.get("source") else None) or table["sources"]
    confidence = row.get("confidence") or table.get("confidence")
    if confidence is None:
        return [((), f"{key} has no confidence")]
    if faults := list(row_faults(table, row)):
        return [((field,), f"{key}: {field}: {fault}") for field, fault in faults]
    keyed[str(key)] = row
    rows.append({"id": f"{name}/{key}", "kind": name, "confidence": confidence, "sources": sources})
    return []


def _rule(file: _File, place: int, row: dict[str, Any], tables: Mapping[str, Any], names: Mapping[str, Kind]) -> Rule | list[str]:
    try:
        rule = compile_rule(row, tables, names)
    except RuleError as problem:
        return [f"{file.at('rules', place, *problem.field.split('.'))}: rule {row['id']}: {problem.field}: {problem}"]
    faults = []
    proposal = row["remedy"].get("policy")
    if proposal is not None:
        for one in check_schema(proposal, read_schema("policy-1")):
            inside = ".".join(str(part) for part in one.path)
            faults.append(f"{file.at('rules', place, 'remedy', 'policy', *one.path)}: rule {rule.id}: remedy.policy.{inside}: {one.message}")
    faults += _examples(file, place, rule)
    return faults or rule


def _examples(file: _File, place: int, rule: Rule) -> Iterator[str]:
    for key in ("match", "near_miss"):
        for number, example in enumerate(rule.row["examples"][key]):
            fragments = example if rule.scope != "node" and isinstance(example, list) else [example]
            for fragment in fragments:
                if fault := _fragment_fault(fragment, rule.scope):
                    yield f"{file.at('rules', place, 'examples', key, number)}: rule {rule.id}: examples.{key}[{number}]: {fault}"


def _fragment_fault(fragment: Any, scope: str) -> str | None:
    if not isinstance(fragment, dict):
        return "expected a map of sections" + ("" if scope == "node" else ", or a list of such maps")
    try:
        example_node(fragment)
    except InvalidNode as problem:
        name = str(problem).rsplit(" ", 1)[-1]
        return f"{problem}{nearest(name, fact_shapes()) if 'unknown field' in str(problem) else ''}"
    for one in check_schema(fragment.get("policy", {}), read_schema("policy-1")):
        return f"policy.{'.'.join(str(part) for part in one.path)}: {one.message}"
    return None
