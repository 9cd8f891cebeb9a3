"""Whether a node is proved healthy after roles have changed it: by the judge's findings before and
after, never by a role's own report."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from unhang.act.rollout.baseline import Baseline, findings_of, key_of, rules_of, with_verdict
from unhang.core.run.record import Finding, Missing
from unhang.core.text import flat

SERIOUS = ("critical", "error")


@dataclass(frozen=True)
class Asked:
    """The request of a proof. severities: of findings with which a node is not healthy; roles: the
    roles that were run. policy_rules: rules that read the policy. rolled_back: the node was rolled
    back, so it need not match its policy. found_by_this_run: the baseline was made after the
    changes that were rolled back, so that findings which a role could cause may be older than these
    changes. for_a_person: rules that the plan leaves to a person on this host, because no role
    changes what they found."""

    severities: Collection[str] = SERIOUS
    roles: Collection[str] = ()
    policy_rules: Collection[str] = ()
    rolled_back: bool = False
    found_by_this_run: bool = False
    for_a_person: Collection[str] = ()


def prove(
    baseline: Baseline,
    after: Iterable[Finding],
    host: str,
    asked: Asked | None = None,
    lost: Iterable[str] = (),
) -> dict[str, Any]:
    """{healthy, reasons, gone, left, person} of one host; reasons is empty for a healthy one.
    after: findings of findings.json; lost: of hardware.losses.

    A node is healthy if it was read, has lost no hardware, and has no serious finding that is new
    or that a role causes. An earlier fault that only a person can repair (a broken link) is only
    reported, because the change did not cause it. Facts that were known before must be known
    afterwards. Findings of groups do not count: while nodes are changed one after the other, they
    differ.
    """
    asked, now = asked or Asked(), findings_of(after, host)
    failed_before, failed_now, unknown_now = (
        rules_of(baseline.failed),
        rules_of(with_verdict(now, "fail")),
        rules_of(with_verdict(now, "unknown")),
    )
    reasons, person = [f"lost: {line}" for line in lost], []
    for one in [one for one in now if one.severity in asked.severities]:
        if one.verdict == "fail" and _counts(one, baseline, asked):
            reasons.append(_line("left" if key_of(one) in baseline.failed else "new", one))
        elif one.verdict == "fail":
            person.append(_line("for a person", one))
        elif one.verdict == "unknown" and (
            key_of(one) not in baseline.unknown or _is_of_played_role(one, asked)
        ):
            reasons.append(_unknown_line(one, baseline))
    return {
        "healthy": not reasons,
        "reasons": list(dict.fromkeys(reasons)),
        "gone": sorted(failed_before - failed_now - unknown_now),
        "left": sorted(failed_before & failed_now),
        "person": list(dict.fromkeys(person)),
    }


def _counts(one: Finding, baseline: Baseline, asked: Asked) -> bool:
    """Whether the node is not healthy because of a finding."""
    of_a_role = bool((one.remedy or {}).get("role")) and one.rule not in asked.for_a_person
    if asked.rolled_back:
        return key_of(one) not in baseline.failed and not (of_a_role and asked.found_by_this_run)
    return key_of(one) not in baseline.failed or of_a_role


def _is_of_played_role(one: Finding, asked: Asked) -> bool:
    """Whether a rule is about a role that was run: an applied policy must be seen on the node;
    "unknown, as before" is no proof."""
    return (
        not asked.rolled_back
        and one.rule in asked.policy_rules
        and (one.remedy or {}).get("role") in asked.roles
    )


def _unknown_line(one: Finding, baseline: Baseline) -> str:
    missing = one.missing[0] if one.missing else Missing("?", reason="?")
    kind = "not known" if key_of(one) in baseline.unknown else "no longer known"
    return f"{kind}: {one.rule}, for want of {missing.path} ({missing.reason})"


def _line(kind: str, one: Finding) -> str:
    remedy = one.remedy or {}
    wanted = ", ".join(f"{key}: {value}" for key, value in flat(remedy.get("policy") or {}))
    how = (
        f"role {remedy['role']}{f' with {wanted} in the policy' if wanted else ''}"
        if remedy.get("role")
        else remedy.get("person") or "a person has to look"
    )
    return (
        f"{kind}: {one.rule} ({one.severity}): the check found {one.found}, and needs"
        f" {one.expected}; {how}"
    )
