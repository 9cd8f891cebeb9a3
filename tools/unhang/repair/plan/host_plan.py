"""The plan of one host: each finding becomes a remedy under the host's policy, a refusal, or a task for a person. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unhang.audit.judge.documents import NodeDocument
from unhang.base.text import visible
from unhang.repair.plan.departures import fact, present_in
from unhang.repair.plan.disruption import jobs, minutes, minutes_at_least, reboots, scheduler, versions
from unhang.repair.plan.plan_document import HostPlan, PersonNeeded, Reboot, Refused, Remedy
from unhang.repair.plan.policy_check import PolicyJudge
from unhang.repair.plan.role_refusals import role_refusals
from unhang.repair.plan.role_remedies import Reads, RoleRemedies, sort_remedies
from unhang.repair.role_changes.nccl_setting_check import Known
from unhang.schemas.configuration import hash_of_sections

Findings = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Knowledge:
    """Inputs of planning besides the host. reads: rule -> paths that decide it; judge: judges policies; measured: step -> minutes."""

    reads: Reads
    known: Known
    judge: PolicyJudge
    measured: Mapping[str, float | None]


@dataclass(frozen=True)
class _Work:
    """The work on a host, unless the judge refuses its policy."""

    chosen: RoleRemedies
    remedies: tuple[Remedy, ...]
    reboots: tuple[Reboot, ...]
    minutes: float | None
    minutes_at_least: float
    refused: tuple[Refused, ...]
    person: tuple[PersonNeeded, ...]


def plan_for_host(node: NodeDocument, findings: Findings, knowledge: Knowledge) -> HostPlan:
    """The plan of one host. findings: with verdict fail about it, also those of groups."""
    work = _work(node, findings, knowledge)
    whole = tuple(map(Refused, _refusals_of_host(node, work.chosen, knowledge)))
    return _entry(node, None if node.sections is None else hash_of_sections(node.sections), work, whole)


def _entry(node: NodeDocument, config_hash: str | None, work: _Work, whole: tuple[Refused, ...]) -> HostPlan:
    """whole: reasons why nothing is applied to the host."""
    found = jobs(node.sections)
    return HostPlan(
        node.host,
        fact(node.sections, "node.boot_id"),
        config_hash,
        () if whole else work.remedies,
        () if whole else work.reboots,
        None if found is None else tuple(found),
        0.0 if whole else work.minutes,
        (*whole, *work.refused) if whole else work.refused,
        work.person,
        0.0 if whole else work.minutes_at_least,
        scheduler(node.sections),
    )


def _work(node: NodeDocument, findings: Findings, knowledge: Knowledge) -> _Work:
    """The work on a host, unless the judge refuses its policy."""
    chosen = _sorted(node, findings, knowledge)
    reasons = role_refusals(node.sections) if chosen.roles else {}
    refused = {role: _not_played(role, rules, reasons[role]) for role, rules in chosen.roles.items() if role in reasons}
    if refused:  # the proposals of these findings are not merged into the policy
        others = _sorted(node, [one for one in findings if (one["remedy"] or {}).get("role") not in refused], knowledge)
        chosen = replace(others, person=chosen.person)
    remarks = {one["rule"] for one in findings if one["severity"] == "info"}  # a healthy node has them too: nobody needs to act
    roles, policy = list(chosen.roles), chosen.policy
    needed = reboots(roles, policy, node.sections) if roles else []
    return _Work(
        chosen,
        tuple(Remedy(role, policy, rules, *versions(role, policy, node.sections)) for role, rules in chosen.roles.items()),
        tuple(needed),
        minutes(roles, needed, knowledge.measured) if roles else 0.0,
        minutes_at_least(roles, needed, knowledge.measured) if roles else 0.0,
        tuple(Refused(line) for line in (*refused.values(), *chosen.refused)),
        tuple(PersonNeeded(rule, what) for rule, what in chosen.person if rule not in remarks),
    )


def _sorted(node: NodeDocument, findings: Findings, knowledge: Knowledge) -> RoleRemedies:
    """The findings by role and by person. If a pin of the inventory resolves a finding, the pin is its remedy, as for the judge."""
    present = present_in(node.sections)
    found = sort_remedies(findings, node.policy, present, knowledge.reads, knowledge.known)
    cleared = knowledge.judge.cleared(node.host, node.groups, node.policy, node.sections, found.conflicts) if found.conflicts else frozenset[str]()
    return sort_remedies(findings, node.policy, present, knowledge.reads, knowledge.known, cleared) if cleared else found


def _refusals_of_host(node: NodeDocument, sorted_out: RoleRemedies, knowledge: Knowledge) -> Iterator[str]:
    """Reasons why nothing is applied to the host, the same as in remediate.yml. Empty for a node without changes."""
    if not sorted_out.roles:
        return
    if node.status != "ok" or node.sections is None:
        yield visible(f"the node was not read: {node.status}, {node.message}; {_not_applied(sorted_out)}")
        return
    for one in knowledge.judge.refusals(node.host, node.groups, sorted_out.policy, node.sections):
        why = f"unhang_policy: {one['title']} ({one['rule']}): expected {one['expected']}, found {one['found']}"
        yield visible(f"{why}; {_not_applied(sorted_out)}", 2000)


def _not_applied(sorted_out: RoleRemedies) -> str:
    return "not applied: " + ", ".join(f"{role} (for {_listed(rules)})" for role, rules in sorted_out.roles.items())


def _not_played(role: str, rules: Sequence[str], reason: str) -> str:
    return visible(f"role {role} (for {_listed(rules)}): {reason}", 2000)


def _listed(rules: Sequence[str]) -> str:
    return ", ".join(rules[:8]) + (f" and {len(rules) - 8} more" if len(rules) > 8 else "")
