"""The catalogue's tables that lint looks things up in, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from unhang.diagnose.signatures import CATALOGUE
from unhang.strict_yaml import load_yaml

_FILES = ("tables/nccl_variables.yml", "tables/settings.yml", "tables/lint.yml", "tables/torch.yml", "tables/timeouts.yml", "rules/nccl_settings.yml")


@dataclass(frozen=True)
class Knowledge:
    """Rows by name, and each table's own first source."""

    tables: Mapping[str, Mapping[str, Mapping[str, Any]]]
    sources: Mapping[str, str]

    def row(self, table: str, name: str) -> Mapping[str, Any] | None:
        """A row, or None."""
        return self.tables[table].get(name)

    def source(self, table: str, row: Mapping[str, Any] | None = None) -> str:
        """Where a row can be read up."""
        return str((row or {}).get("source") or self.sources[table])


@cache
def load_knowledge() -> Knowledge:
    """Reads the tables. Raises YamlFault: they ship with the program."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    sources: dict[str, str] = {}
    for file in _FILES:
        content, _places = load_yaml(CATALOGUE / file)
        for name, table in content.get("tables", {}).items():
            tables[name] = {str(row[table["key"]]): row for row in table["rows"]}
            sources[name] = table["sources"][0]["url"]
    return Knowledge(tables, sources)
