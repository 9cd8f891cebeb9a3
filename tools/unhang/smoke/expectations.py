"""What is known of healthy groups: the catalogue's table, and results of earlier runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unhang.errors import UserError
from unhang.smoke.result import SCHEMA
from unhang.strict_yaml import YamlFault, load_yaml

TABLE = Path(__file__).resolve().parents[1] / "catalogue" / "tables" / "bandwidth.yml"


def bandwidth_table() -> list[dict[str, Any]]:
    """Rows of the catalogue's table `bandwidth`. Raises UserError."""
    try:
        content, _ = load_yaml(TABLE)
        return list(content["tables"]["bandwidth"]["rows"])
    except (YamlFault, KeyError, TypeError) as problem:
        raise UserError(f"{TABLE}: expected the table bandwidth, found: {problem}; unhang catalogue --check says more") from None


def read_baselines(paths: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Results in files, or in the JSON files of folders. Raises UserError for one that is none."""
    for one in paths:
        path = Path(one)
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                document = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as problem:
                raise UserError(f"--baseline: expected a result of unhang smoke in {file}, found: {problem}") from None
            if not isinstance(document, dict) or document.get("schema") != SCHEMA:
                raise UserError(f"--baseline: expected {SCHEMA} in {file}, found something else")
            yield document
