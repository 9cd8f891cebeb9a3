"""The plan of one host: each finding becomes a remedy under the host's policy, a refusal, or a task for a person. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from unhang.audit.judge.documents import NodeDocument, part_names
from unhang.base.text import visible
from unhang.repair.plan.departures import fact, present_in
from unhang.repair.plan.disruption import jobs, minutes, minutes_at_least, reboots, scheduler, versions
from unhang.repair.plan.plan_document import HostPlan, PersonNeeded, Reboot, Refused, Remedy
from unhang.repair.plan.planned_facts import json_of, planned_facts
from unhang.repair.plan.policy_check import PolicyJudge
from unhang.repair.plan.role_refusals import role_refusals
from unhang.repair.plan.role_remedies import LOOKED_AT, Reads, RoleRemedies, sort_remedies
from unhang.repair.role_changes.nccl_setting_check import Known
from unhang.schemas.part_hashes import PartHashes

_encode = msgspec.json.Encoder(order="deterministic").encode
Findings = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Knowledge:
    """Inputs of planning besides the host. reads: rule -> paths that decide it; judge: judges policies; measured: step -> minutes."""

    reads: Reads
    known: Known
    judge: PolicyJudge
    measured: Mapping[str, float | None]
    planned_before: dict[Any, _Work | None] = field(default_factory=dict)  # results for equal nodes, as most nodes of a fleet are
    sorted_before: dict[Any, RoleRemedies] = field(default_factory=dict)
    hashes: PartHashes = field(default_factory=lambda: PartHashes(part_names()))
    policies: dict[int, tuple[Mapping[str, Any], bytes]] = field(default_factory=dict)  # id -> the policy, which nodes share, and its JSON


@dataclass(frozen=True)
class _Work:
    """The work on all equal nodes, unless the judge refuses their policy."""

    chosen: RoleRemedies
    remedies: tuple[Remedy, ...]
    reboots: tuple[Reboot, ...]
    minutes: float | None
    minutes_at_least: float
    refused: tuple[Refused, ...]
    person: tuple[PersonNeeded, ...]


def plan_for_host(node: NodeDocument, findings: Findings, knowledge: Knowledge) -> HostPlan:
    """The plan of one host. findings: with verdict fail about it, also those of groups."""
    return plan_for_hosts([(node, findings)], knowledge)[0]


def plan_for_hosts(nodes: Sequence[tuple[NodeDocument, Findings]], knowledge: Knowledge) -> list[HostPlan]:
    """The plan of each of these hosts, independent of the others. Each step is done for all hosts before the next step, which takes a sixth less time,
    because a step's code stays in the processor's cache."""
    hashes = [None if node.sections is None else knowledge.hashes.hash_of(node.sections, node.seen) for node, _ in nodes]
    works = [_work(node, findings, knowledge) for node, findings in nodes]
    whole = [tuple(map(Refused, _refusals_of_host(node, work.chosen, knowledge))) for (node, _), work in zip(nodes, works, strict=True)]
    return [_entry(node, *made) for (node, _), made in zip(nodes, zip(hashes, works, whole, strict=True), strict=True)]


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


def _work(node: NodeDocument, findings: Sequence[Mapping[str, Any]], knowledge: Knowledge) -> _Work:
    """The work, computed once for all nodes with equal findings, policy and planned facts, except those whose policy must be judged."""
    facts = planned_facts(node.sections)
    key = (_json_of(node.policy, knowledge), _encode([_planned_of(one) for one in findings]), json_of(facts))
    known = knowledge.planned_before.get(key)
    if known is None:
        known, is_shared = _work_of(node, facts, findings, key, knowledge)
        if is_shared:
            knowledge.planned_before[key] = known
    return known


def _planned_of(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parts of a finding that decide its plan."""
    where = finding.get("where")
    return finding["rule"], finding["severity"], finding["scope"], where and [where.get(key) for key in LOOKED_AT], finding["remedy"]


def _work_of(node: NodeDocument, facts: Any, findings: Sequence[Mapping[str, Any]], key: Any, knowledge: Knowledge) -> tuple[_Work, bool]:
    """(the work, whether it is valid for every node with this key)."""
    chosen, is_shared = _sorted(node, facts, findings, key, knowledge)
    reasons = role_refusals(facts) if chosen.roles else {}
    refused = {role: _not_played(role, rules, reasons[role]) for role, rules in chosen.roles.items() if role in reasons}
    if refused:  # the proposals of these findings are not merged into the policy
        kept = [one for one in findings if (one["remedy"] or {}).get("role") not in refused]
        others, is_shared_too = _sorted(node, facts, kept, (key, tuple(refused)), knowledge)
        chosen, is_shared = replace(others, person=chosen.person), is_shared and is_shared_too
    roles, policy = list(chosen.roles), chosen.policy
    needed = reboots(roles, policy, facts) if roles else []
    work = _Work(
        chosen,
        tuple(Remedy(role, policy, rules, *versions(role, policy, facts)) for role, rules in chosen.roles.items()),
        tuple(needed),
        minutes(roles, needed, knowledge.measured) if roles else 0.0,
        minutes_at_least(roles, needed, knowledge.measured) if roles else 0.0,
        tuple(Refused(line) for line in (*refused.values(), *chosen.refused)),
        tuple(PersonNeeded(rule, what) for rule, what in chosen.person),
    )
    return work, is_shared


def _sorted(node: NodeDocument, facts: Any, findings: Sequence[Mapping[str, Any]], key: Any, knowledge: Knowledge) -> tuple[RoleRemedies, bool]:
    """(result of sort_remedies, whether it is valid for every node with this key). If a pin of the inventory resolves a finding, the pin is its remedy, as
    for the judge."""
    present, cleared = present_in(facts), frozenset[str]()
    if key not in knowledge.sorted_before:
        knowledge.sorted_before[key] = sort_remedies(findings, node.policy, present, knowledge.reads, knowledge.known)
    conflicts = knowledge.sorted_before[key].conflicts
    if conflicts:
        cleared = knowledge.judge.cleared(node.host, node.groups, node.policy, node.sections, conflicts)
    if cleared and (key, cleared) not in knowledge.sorted_before:
        knowledge.sorted_before[key, cleared] = sort_remedies(findings, node.policy, present, knowledge.reads, knowledge.known, cleared)
    return knowledge.sorted_before[(key, cleared) if cleared else key], not conflicts


def _json_of(policy: Mapping[str, Any], knowledge: Knowledge) -> bytes:
    """The policy as JSON, encoded once for all nodes that share the object."""
    known = knowledge.policies.get(id(policy))
    if known is None or known[0] is not policy:
        known = knowledge.policies[id(policy)] = (policy, _encode(policy))
    return known[1]


def _refusals_of_host(node: NodeDocument, sorted_out: RoleRemedies, knowledge: Knowledge) -> Iterator[str]:
    """Reasons why nothing is applied to the host, the same as in remediate.yml. Empty for a node without changes."""
    if not sorted_out.roles:
        return
    if node.status != "ok" or node.sections is None:
        yield visible(f"the node was not read: {node.status}, {node.message}; {_not_applied(sorted_out)}")
        return
    for one in knowledge.judge.refusals(node.host, node.groups, sorted_out.policy, node.sections, node.seen):
        why = f"unhang_policy: {one['title']} ({one['rule']}): expected {one['expected']}, found {one['found']}"
        yield visible(f"{why}; {_not_applied(sorted_out)}", 2000)


def _not_applied(sorted_out: RoleRemedies) -> str:
    return "not applied: " + ", ".join(f"{role} (for {_listed(rules)})" for role, rules in sorted_out.roles.items())


def _not_played(role: str, rules: Sequence[str], reason: str) -> str:
    return visible(f"role {role} (for {_listed(rules)}): {reason}", 2000)


def _listed(rules: Sequence[str]) -> str:
    return ", ".join(rules[:8]) + (f" and {len(rules) - 8} more" if len(rules) > 8 else "")
