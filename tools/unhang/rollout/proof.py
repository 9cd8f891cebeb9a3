"""Whether a node is proved healthy after roles have changed it: by the judge's findings before and after, and by nothing that a role says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SERIOUS = ("critical", "error")


def prove(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]], host: str, serious: Iterable[str] = SERIOUS) -> dict[str, Any]:
    """{healthy, reasons, gone, left, person} of one host; reasons is empty for a healthy one. before, after: findings of findings.json.

    Healthy is a node that was read, and that has no serious finding which a role brings about or which was not there before. What was there before and only a
    person can change (a broken link) is told and stops nothing: it did not come with the change. What was known before has to be known after.
    Findings of groups do not count: while nodes are changed one after the other, they differ.
    """
    serious = tuple(serious)
    was, now = _of(before, host), _of(after, host)
    failed_before, unknown_before = _rules(was, "fail"), _rules(was, "unknown")
    failed_now, unknown_now = _rules(now, "fail"), _rules(now, "unknown")
    reasons, person = [], []
    for one in now:
        if one["severity"] not in serious:
            continue
        if one["verdict"] == "fail" and (one["remedy"].get("role") or one["rule"] not in failed_before):
            reasons.append(_line("left" if one["rule"] in failed_before else "new", one))
        elif one["verdict"] == "fail":
            person.append(_line("for a person", one))
        elif one["verdict"] == "unknown" and one["rule"] not in unknown_before:
            missing = one["missing"][0] if one.get("missing") else {"path": "?", "reason": "?"}
            reasons.append(f"no longer known: {one['rule']}, for want of {missing['path']} ({missing['reason']})")
    return {
        "healthy": not reasons,
        "reasons": _once(reasons),
        "gone": sorted(failed_before - failed_now - unknown_now),
        "left": sorted(failed_before & failed_now),
        "person": _once(person),
    }


def _of(findings: Iterable[Mapping[str, Any]], host: str) -> list[Mapping[str, Any]]:
    """A host's own: those of its peers name `hosts` and no host."""
    return [one for one in findings if one["host"] == host and one["scope"] == "node"]


def _rules(findings: Iterable[Mapping[str, Any]], verdict: str) -> set[str]:
    return {one["rule"] for one in findings if one["verdict"] == verdict}


def _line(kind: str, one: Mapping[str, Any]) -> str:
    remedy = one["remedy"]
    wanted = ", ".join(f"{key} {value}" for key, value in _flat(remedy.get("policy") or {}))
    how = f"role {remedy['role']}{f' with {wanted} in the policy' if wanted else ''}" if remedy.get("role") else remedy.get("person") or "a person has to look"
    return f"{kind}: {one['rule']} ({one['severity']}), expected {one['expected']}, found {one['found']}; {how}"


def _flat(policy: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in policy.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}:", value)]
    return rows


def _once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))
