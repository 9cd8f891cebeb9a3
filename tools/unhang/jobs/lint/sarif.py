"""Findings of lint as SARIF 2.1.0, which code hosts show beside the lines of a change. Document in,
text out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from unhang.core.text import text_for_sarif

LEVELS = {"error": "error", "warning": "warning", "info": "note"}
SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def render_sarif(document: Mapping[str, Any]) -> str:
    """One SARIF log with one run."""
    first = {one["rule"]: one for one in reversed(document["findings"])}
    rules = sorted(first)
    driver = {"name": "unhang lint", "rules": [_rule(rule, first[rule]) for rule in rules]}
    results = [_result(one, rules.index(one["rule"])) for one in document["findings"]]
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
        ],
    }
    return json.dumps(log, ensure_ascii=True, indent=1) + "\n"


def _rule(rule: str, finding: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a rule for a code host: its name in words, and a link."""
    level = {"level": LEVELS[finding["severity"]]}
    return {
        "id": rule, "shortDescription": {"text": rule.replace("-", " ")},
        "helpUri": finding["source"], "defaultConfiguration": level,
    }  # fmt: skip


def _result(finding: Mapping[str, Any], index: int) -> dict[str, Any]:
    path = PurePath(re.sub("^/+", "/", finding["file"]))  # two would name another host
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")
    place = {
        "artifactLocation": {"uri": uri},
        "region": {"startLine": max(1, int(finding["line"]))},
    }
    text = (
        f"{finding['found']}: {finding['why']}; instead: {finding['instead']} ({finding['source']})"
    )
    return {
        "ruleId": finding["rule"], "ruleIndex": index, "level": LEVELS[finding["severity"]],
        "message": {"text": text_for_sarif(text)},
        "locations": [{"physicalLocation": place}],
    }  # fmt: skip
