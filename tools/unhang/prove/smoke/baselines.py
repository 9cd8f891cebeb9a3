"""Baselines from results of earlier smoke tests of this fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unhang.base.errors import UserError
from unhang.base.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.prove.smoke.result import SCHEMA

LARGEST = 64 * 1024 * 1024  # a result over a thousand nodes is a few MB


def read_baselines(paths: Iterable[str], option: str = "--baseline") -> Iterator[dict[str, Any]]:
    """Results in files, or in the JSON files of folders. Raises UserError for a file that is no result."""
    for one in paths:
        path = Path(one)
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                document = parse_strictly(read_bounded(file, LARGEST))
            except (OSError, NotStrict) as problem:
                raise UserError(f"{option}: expected a result of unhang smoke in {file}, found: {problem}") from None
            if not isinstance(document, dict) or document.get("schema") != SCHEMA:
                raise UserError(f"{option}: expected {SCHEMA} in {file}, found something else")
            yield document


def history_rows(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What earlier runs that passed have reached, for `bandwidth.expectation`."""
    rows = []
    for result in results:
        group, collectives = result.get("group"), result.get("collectives")
        if result.get("verdict") == "pass" and isinstance(group, dict) and isinstance(collectives, list):
            rows += [{**group, **row} for row in collectives if isinstance(row, dict) and row.get("measures") == "bandwidth"]
    return rows
