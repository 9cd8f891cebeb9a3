"""Findings of lint as SARIF 2.1.0, which code hosts show beside the lines of a change. Document in, text out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LEVELS = {"error": "error", "warning": "warning", "info": "note"}
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render_sarif(document: Mapping[str, Any]) -> str:
    """One SARIF log with one run."""
    rules = sorted({one["rule"] for one in document["findings"]})
    driver = {"name": "unhang lint", "rules": [{"id": rule} for rule in rules]}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": [_result(one) for one in document["findings"]]}]}
    return json.dumps(log, ensure_ascii=True, indent=1) + "\n"


def _result(finding: Mapping[str, Any]) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": str(finding["file"])}, "region": {"startLine": max(1, int(finding["line"]))}}
    text = f"{finding['found']}: {finding['why']}; instead: {finding['instead']} ({finding['source']})"
    return {"ruleId": finding["rule"], "level": LEVELS[finding["severity"]], "message": {"text": text}, "locations": [{"physicalLocation": place}]}
