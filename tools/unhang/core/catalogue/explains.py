"""The findings that a finding explains: `explains` of the rules' rows, followed from rule to
rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def explained_by(rows: Mapping[str, Mapping[str, Any]], rule_id: str) -> frozenset[str]:
    """Ids of the rules that a rule explains, directly and indirectly. rows: rule id -> row."""
    found: set[str] = set()
    waiting = list(rows[rule_id].get("explains", ()))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += rows.get(one, {}).get("explains", ())
    return frozenset(found)


def circles(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One line for each rule that explains itself indirectly: if two rules explain each other,
    neither is the cause."""
    for rule_id, row in rows.items():
        if rule_id in explained_by(rows, rule_id):
            yield (
                f"rule {rule_id}: explains: it explains itself through"
                f" {', '.join(sorted(row['explains']))}"
            )
