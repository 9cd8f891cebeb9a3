"""The page of causes, from the catalogue: the causes that `unhang diagnose` can name, and the
remedy of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.core import catalogue
from unhang.core.text import flat

HEAD = """# Causes

What `unhang diagnose` can name, and what is done about each. This page is written from the rows in `tools/unhang/jobs/catalogue/causes/`
(`make manual`). [diagnosis-method](../../docs/diagnosis-method.md) says how causes are ranked.

| cause | what it is | remedy | the audit's rules |
| --- | --- | --- | --- |
"""  # noqa: E501


def render_causes(_catalogue: object = None) -> str:
    """causes.md: a table of the causes, by id."""
    rows = [
        row
        for _path, content in catalogue.checked_files("causes", "cause-1")
        for row in content["causes"]
    ]
    return HEAD + "".join(_row(row) for row in sorted(rows, key=lambda row: row["id"]))


def _row(row: Mapping[str, Any]) -> str:
    rules = ", ".join(f"`{rule}`" for rule in row.get("rules", ())) or "none"
    return (
        f"| `{row['id']}` | {_cell(row['title'])}: {_cell(row['means'])} |"
        f" {_cell(_remedy(row['remedy']))} | {rules} |\n"
    )


def _remedy(remedy: Mapping[str, Any]) -> str:
    parts = []
    if role := remedy.get("role"):
        settings = ", ".join(
            f"{name}: {value}" for name, value in flat(remedy.get("variables") or {})
        )
        parts.append(f"role {role}" + (f" with {settings}" if settings else ""))
    return "; ".join([*parts, *([str(remedy["person"])] if remedy.get("person") else [])])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
