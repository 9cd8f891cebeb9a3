"""What a person does about the findings that a role leaves to one, as the plan has it. A findings
document in, a findings document out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_manual_work(findings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document, with the manual work as the remedy of each finding of `by_hand`: its own, else
    that of its cause."""
    left, rows = frozenset(findings.get("by_hand") or ()), findings["findings"]
    if not left:
        return findings
    by_cause = {
        place: cause["remedy"]["person"][0]
        for cause in findings["causes"]
        for place in cause["findings"]
        if cause["remedy"]["person"] and rows[place]["rule"] == cause["rule"]
    }
    shown = [
        {**one, "remedy": _manual(one["remedy"], by_cause.get(place))} if place in left else one
        for place, one in enumerate(rows)
    ]
    return {**findings, "findings": shown}


def _manual(remedy: Mapping[str, Any], of_cause: str | None) -> dict[str, Any]:
    return {
        "person": remedy.get("person")
        or of_cause
        or f"role {remedy['role']} does not repair it here; unhang plan says why"
    }
