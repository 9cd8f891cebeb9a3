"""The catalogue: rules, tables, entries, signatures and causes as YAML rows. Other packages read
them only through this package, with the strict loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.core.catalogue.own_files import folders_of
from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.strict_yaml import YamlFault, load_yaml


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
        content, places = load_yaml(path)
    except YamlFault as problem:
        raise UserError(str(problem)) from None
    for fault in check_schema(content, schema):
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
