"""Reads the catalogue's files strictly: rules, entries and tables as rows; each fault has its file
and line. Compiles nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.core.catalogue.tables import CheckVersion, Table, completed, date_fault, row_faults
from unhang.core.schemas.check import Fault, check_schema
from unhang.core.strict_yaml import Place, YamlFault, load_yaml


@dataclass(frozen=True)
class CatalogueFile:
    """The rows of one file that follow the schema. rows, entries: (place in the file, row)."""

    path: Path
    rows: list[tuple[int, dict[str, Any]]]
    entries: list[tuple[int, dict[str, Any]]]
    tables: dict[str, dict[str, Any]]
    places: Mapping[tuple, Place]
    # ids of rows that do not follow the schema: a row that names one of them in `also` is not at
    # fault
    refused: frozenset[str] = frozenset()

    def at(self, *path: object) -> str:
        """file:line of the nearest thing that has a line."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return f"{self.path}:{self.places[path[:end]].line}"
        return str(self.path)


def read_file(path: Path, faults: list[str]) -> Iterator[CatalogueFile]:
    """One file: its rows without a fault, or nothing if the file itself has a fault."""
    try:
        content, places = load_yaml(path)
    except YamlFault as problem:
        faults.append(str(problem))
        return
    found = list(check_schema(content, "rule-1"))
    file = CatalogueFile(path, [], [], {}, places, frozenset(_ids_at_fault(content, found)))
    faults += [f"{file.at(*one.path)}: {_named(content, one)}" for one in found]
    if any(len(one.path) < 2 for one in found):
        return  # the fault is in the file itself, not in one of its rows
    bad = {one.path[:2] for one in found}
    file.rows.extend(
        (place, row)
        for place, row in enumerate(content.get("rules", ()))
        if ("rules", place) not in bad
    )
    file.entries.extend(
        (place, row)
        for place, row in enumerate(content.get("entries", ()))
        if ("entries", place) not in bad
    )
    file.tables.update(
        {
            name: table
            for name, table in content.get("tables", {}).items()
            if ("tables", name) not in bad
        }
    )
    yield file


def _ids_at_fault(content: Any, faults: list[Fault]) -> Iterator[str]:
    for kind, place in {
        one.path[:2] for one in faults if len(one.path) >= 2 and one.path[0] in ("rules", "entries")
    }:
        row = content[kind][place]
        if isinstance(row, dict) and isinstance(row.get("id"), str):
            yield row["id"]


def _named(content: Any, fault: Fault) -> str:
    """A fault with the id of the rule that it is in."""
    if len(fault.path) >= 2 and fault.path[0] in ("rules", "entries"):
        row = content[fault.path[0]][fault.path[1]]
        inside = ".".join(str(part) for part in fault.path[2:])
        name = row.get("id") if isinstance(row, dict) else None
        kind = "rule" if fault.path[0] == "rules" else "entry"
        return ": ".join(
            part
            for part in (
                f"{kind} {name if isinstance(name, str) else fault.path[1]}",
                inside,
                fault.message,
            )
            if part
        )
    return ": ".join(
        part for part in (".".join(str(part) for part in fault.path), fault.message) if part
    )


def collect_tables(
    files: Iterable[CatalogueFile],
    faults: list[str],
    check_version: CheckVersion = lambda _text, _order: None,
) -> tuple[dict[str, Table], list[dict[str, Any]]]:
    """(table name -> its rows by key, all rows as the catalogue lists them). Adds to `faults`
    values that the fields of a table do not allow. check_version: without it, versions are taken as
    they are written."""
    tables: dict[str, Table] = {}
    rows: list[dict[str, Any]] = []
    for file in files:
        for name, table in file.tables.items():
            if name in tables:
                faults.append(
                    f"{file.at('tables', name)}: the table {name} is already there at"
                    f" {tables[name].place}"
                )
                continue
            tables[name] = Table(table, file.at("tables", name))
            if "as_of" in table and (fault := date_fault(table["as_of"])):
                faults.append(f"{file.at('tables', name, 'as_of')}: table {name}: as_of: {fault}")
            for place, row in enumerate(table["rows"]):
                found = _table_row(name, table, row, tables[name], rows, check_version)
                faults += [
                    f"{file.at('tables', name, 'rows', place, *at)}: table {name}: {fault}"
                    for at, fault in found
                ]
    return tables, rows


def _table_row(
    name: str,
    table: Mapping[str, Any],
    row: dict[str, Any],
    keyed: Table,
    rows: list[dict[str, Any]],
    check_version: CheckVersion,
) -> list[tuple[tuple[str, ...], str]]:
    """The faults of a row, with their place in the row; a row without a fault is added to both."""
    key = row.get(table["key"])
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        return [((), f"the key {table['key']} is missing, or neither text nor number")]
    if str(key) in keyed:
        return [((table["key"],), f"{key} is there twice")]
    sources = (
        row.get("sources")
        or ([{"url": row["source"], "says": ""}] if row.get("source") else None)
        or table["sources"]
    )
    confidence = row.get("confidence") or table.get("confidence")
    if confidence is None:
        return [((), f"{key} has no confidence")]
    if faults := list(row_faults(table, row, check_version)):
        return [((field,), f"{key}: {field}: {fault}") for field, fault in faults]
    keyed[str(key)] = completed(table, row)
    rows.append({"id": f"{name}/{key}", "kind": name, "confidence": confidence, "sources": sources})
    return []
