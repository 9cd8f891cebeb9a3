"""The catalogue: rules, tables, entries, signatures and causes as YAML rows. Other packages read
them only through this package, with the strict loader."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from unhang.core.catalogue.kept_yaml import folders_of, read_yaml
from unhang.core.catalogue.reading import collect_tables, read_file
from unhang.core.catalogue.tables import Table
from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.core.strict_yaml import YamlFault

_WITH_TABLES = ("tables", "rules")


@cache
def table(name: str) -> Table:
    """One of the project's own tables: its rows by key. Raises UserError if there is no such table,
    or its file has a fault."""
    path = _files_by_table().get(name)
    if path is None:
        raise UserError(f"there is no table {name}; unhang catalogue check has details")
    return _tables_of(path)[name]


@cache
def _files_by_table() -> dict[str, Path]:
    """{table: its file}, found by the text of its heading, so that reading one table parses only
    one file."""
    heading = re.compile(r"^ {2}(\w+):", re.MULTILINE)
    paths = [
        path
        for kind in _WITH_TABLES
        for folder in folders_of(kind)
        for path in sorted(folder.glob("*.yml"))
    ]
    found = {
        path: re.search(
            r"^tables:\n((?:[ #].*\n|\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        for path in paths
    }
    return {
        name: path
        for path, tables in found.items()
        if tables
        for name in heading.findall(tables.group(1))
    }


@cache
def _tables_of(path: Path) -> dict[str, Table]:
    faults: list[str] = []
    tables, _ = collect_tables(read_file(path, faults), faults)
    if faults:
        raise UserError("\n".join(faults))
    return tables


def checked_files(kind: str, schema: str) -> list[tuple[Path, dict[str, Any]]]:
    """(path, content) of each file of one kind of rows, such as causes. Raises UserError with file
    and fault."""
    return [
        (path, checked_file(path, schema))
        for folder in folders_of(kind)
        for path in sorted(folder.rglob("*.yml"))
    ]


def checked_file(path: Path, schema: str) -> dict[str, Any]:
    """One file that follows a schema. Raises UserError with file and fault."""
    try:
        content, places, _ = read_yaml(path)
    except YamlFault as problem:
        raise UserError(str(problem)) from None
    for fault in check_schema(content, read_schema(schema)):
        line = next(
            (
                places[fault.path[:end]].line
                for end in range(len(fault.path), -1, -1)
                if fault.path[:end] in places
            ),
            1,
        )
        raise UserError(f"{path}:{line}: {'.'.join(map(str, fault.path))}: {fault.message}")
    return content
