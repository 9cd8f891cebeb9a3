"""The catalogue's tables that lint uses, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from unhang.core.catalogue.own_tables import as_written, table

_TABLES = (
    "nccl_variables", "torch_variables", "not_real_settings", "renamed_settings",
    "foreign_settings", "hiding_settings", "nccl_contradictions",
    "nccl_platform_settings", "torch_wheels", "timeout_settings",
)  # fmt: skip


@dataclass(frozen=True)
class Knowledge:
    """Rows by name, and each table's own first source."""

    tables: Mapping[str, Mapping[str, Mapping[str, Any]]]
    sources: Mapping[str, str]

    def row(self, table: str, name: str) -> Mapping[str, Any] | None:
        """A row, or None."""
        return self.tables[table].get(name)

    def source(self, table: str, row: Mapping[str, Any] | None = None) -> str:
        """The source of a row."""
        return str((row or {}).get("source") or self.sources[table])


@cache
def load_knowledge() -> Knowledge:
    """Reads the tables. Raises UserError if that fails, because they ship with the program."""
    tables = {name: table(name) for name in _TABLES}
    return Knowledge(tables, {name: as_written(name)["sources"][0]["url"] for name in _TABLES})
