"""The catalogue's tables that lint uses, and findings in their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from unhang.core.catalogue.own_tables import as_written, table
from unhang.jobs.job_files import Finding

Findings = Iterator[Finding]
FAULTS = ("launch_faults", "setting_faults", "script_faults", "conf_faults")


def row_of(name: str, key: str) -> Mapping[str, Any]:
    """A row of a table; an empty one if there is none."""
    return table(name).get(key) or {}


def matching(name: str, text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """(key, what it finds) of each row of a table whose pattern is in a text."""
    for key, row in table(name).items():
        if found := re.search(row["pattern"], text):
            yield key, found


def source_of(name: str, row: Mapping[str, Any] | None = None) -> str:
    """The source of a row, else the first of its table."""
    return str((row or {}).get("source") or as_written(name)["sources"][0]["url"])


def said(key: str, line: int, found: str, values: Mapping[str, Any], source: str = "") -> Finding:
    """A finding in the words of its row."""
    name = next(one for one in FAULTS if key in table(one))
    row = table(name)[key]
    words = (row["why"], row["instead"], source or source_of(name, row))
    why, instead, page = (str(one).format(**values) for one in words)
    return Finding(line, row["rule"], row["severity"], found, why, instead, page)


def rules() -> list[str]:
    """The ids of all rules."""
    return sorted({row["rule"] for name in FAULTS for row in table(name).values()})


@cache
def listed(kind: str) -> frozenset[str]:
    """The names in Python of a kind."""
    return frozenset(row_of("python_words", kind).get("words", ()))
