"""Whether a node is proved healthy after roles have changed it: by the judge's findings before and after, and by nothing that a role says of itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unhang.rollout.baseline import Baseline, findings_of, key_of, rules_of, with_verdict

SERIOUS = ("critical", "error")


@dataclass(frozen=True)
class Asked:
    """What was done, and what counts. severities: of findings that keep a node from being healthy; roles: those just played.

    policy_rules: rules that read the policy. rolled_back: the node was brought back, and not to its policy. found_by_this_run: the baseline is not from before
    the changes that were rolled back, so that what a role could bring about may have been there before them. for_a_person: rules that the plan leaves to a
    person on this host, for no role changes there what they have found.
    """

    severities: Collection[str] = SERIOUS
    roles: Collection[str] = ()
    policy_rules: Collection[str] = ()
    rolled_back: bool = False
    found_by_this_run: bool = False
    for_a_person: Collection[str] = ()


def prove(baseline: Baseline, after: Iterable[Mapping[str, Any]], host: str, asked: Asked | None = None, lost: Iterable[str] = ()) -> dict[str, Any]:
    """{healthy, reasons, gone, left, person} of one host; reasons is empty for a healthy one. after: findings of findings.json; lost: of hardware.losses.

    Healthy is a node that was read, has what it had, and has no serious finding which a role brings about or which was not there before. What was there before
    and only a person can change (a broken link) is reported and stops nothing: it did not come with the change. What was known before has to be known after.
    Findings of groups do not count: while nodes are changed one after the other, they differ.
    """
    asked, now = asked or Asked(), findings_of(after, host)
    failed_before, failed_now, unknown_now = rules_of(baseline.failed), rules_of(with_verdict(now, "fail")), rules_of(with_verdict(now, "unknown"))
    reasons, person = [f"lost: {line}" for line in lost], []
    for one in [one for one in now if one["severity"] in asked.severities]:
        if one["verdict"] == "fail" and _counts(one, baseline, asked):
            reasons.append(_line("left" if key_of(one) in baseline.failed else "new", one))
        elif one["verdict"] == "fail":
            person.append(_line("for a person", one))
        elif one["verdict"] == "unknown" and (key_of(one) not in baseline.unknown or _is_of_played_role(one, asked)):
            reasons.append(_unknown_line(one, baseline))
    return {
        "healthy": not reasons,
        "reasons": _once(reasons),
        "gone": sorted(failed_before - failed_now - unknown_now),
        "left": sorted(failed_before & failed_now),
        "person": _once(person),
    }


def _counts(one: Mapping[str, Any], baseline: Baseline, asked: Asked) -> bool:
    """Whether a finding keeps the node from being healthy."""
    of_a_role = bool(one["remedy"].get("role")) and one["rule"] not in asked.for_a_person
    if asked.rolled_back:
        return key_of(one) not in baseline.failed and not (of_a_role and asked.found_by_this_run)
    return key_of(one) not in baseline.failed or of_a_role


def _is_of_played_role(one: Mapping[str, Any], asked: Asked) -> bool:
    """A policy that was just applied is proved by being seen, not by being out of sight as it was before."""
    return not asked.rolled_back and one["rule"] in asked.policy_rules and one["remedy"].get("role") in asked.roles


def _unknown_line(one: Mapping[str, Any], baseline: Baseline) -> str:
    missing = one["missing"][0] if one.get("missing") else {"path": "?", "reason": "?"}
    kind = "not known" if key_of(one) in baseline.unknown else "no longer known"
    return f"{kind}: {one['rule']}, for want of {missing['path']} ({missing['reason']})"


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
