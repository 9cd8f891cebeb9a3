"""The project's own tables as they are shipped. That their rows follow the fields that they declare
is proved by the tests; a site's tables are read with the rules, by `reading.py`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import unhang
from unhang.core.errors import UserError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def table(name: str) -> dict[str, dict[str, Any]]:
    """The rows by key, with the defaults of their fields. Raises UserError as as_written()."""
    found = as_written(name)
    declared = found.get("fields", {})
    defaults = {field: row["default"] for field, row in declared.items() if "default" in row}
    return {str(row[found["key"]]): {**defaults, **row} for row in found["rows"]}


@cache
def as_written(name: str) -> Any:
    """A table as its file has it, with title, sources and fields. Only the file with its heading is
    parsed. Raises UserError if there is no such table."""
    heading = re.compile(rf"^ {{2}}{name}:$", re.MULTILINE)
    for path in sorted(Path(unhang.__file__).parent.glob("*/catalogue/tables/*.yml")):
        if heading.search(path.read_text(encoding="utf-8")):
            return _content(path)["tables"][name]
    raise UserError(f"there is no table {name}; unhang catalogue check has details")


@cache
def _content(path: Path) -> Any:
    return yaml.load(path.read_bytes(), _LOADER)  # noqa: S506 - a safe one
