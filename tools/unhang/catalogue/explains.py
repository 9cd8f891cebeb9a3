"""Which findings a finding accounts for: `explains` of the rules' rows, through as many rules as it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def explained_by(rows: Mapping[str, Mapping[str, Any]], rule_id: str) -> frozenset[str]:
    """Ids of the rules that a rule accounts for, directly and through those that it explains. rows: rule id -> row."""
    found: set[str] = set()
    waiting = list(rows[rule_id].get("explains", ()))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += rows.get(one, {}).get("explains", ())
    return frozenset(found)


def circles(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One line for each rule that explains itself in the end: of two that account for each other neither is the cause."""
    for rule_id, row in rows.items():
        if rule_id in explained_by(rows, rule_id):
            yield f"rule {rule_id}: explains: it explains itself through {', '.join(sorted(row['explains']))}"
