"""The plan of one host: its findings become remedies under one policy, or are refused, or are named for a person. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from unhang.judge.documents import NodeDocument, part_names
from unhang.plan.departures import fact, present_in
from unhang.plan.disruption import jobs, minutes, minutes_at_least, reboots, versions
from unhang.plan.nccl_known import Known
from unhang.plan.plan_document import HostPlan, PersonNeeded, Reboot, Refused, Remedy
from unhang.plan.planned_facts import json_of, planned_facts
from unhang.plan.policy_check import PolicyJudge
from unhang.plan.role_refusals import role_refusals
from unhang.plan.role_remedies import LOOKED_AT, Reads, RoleRemedies, sort_remedies
from unhang.schemas.part_hashes import PartHashes
from unhang.text import visible

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Knowledge:
    """What planning knows beside a host. reads: rule -> paths that decide it; judge: of policies; measured: step -> minutes."""

    reads: Reads
    known: Known
    judge: PolicyJudge
    measured: Mapping[str, float | None]
    planned_before: dict[Any, _Work | None] = field(default_factory=dict)  # most nodes of a fleet are alike
    sorted_before: dict[Any, RoleRemedies] = field(default_factory=dict)
    hashes: PartHashes = field(default_factory=lambda: PartHashes(part_names()))
    policies: dict[int, tuple[Mapping[str, Any], bytes]] = field(default_factory=dict)  # id -> the policy, which nodes share, and its JSON


@dataclass(frozen=True)
class _Work:
    """What is to be done on all nodes that are alike, unless the judge refuses their policy."""

    chosen: RoleRemedies
    remedies: tuple[Remedy, ...]
    reboots: tuple[Reboot, ...]
    minutes: float | None
    minutes_at_least: float
    refused: tuple[Refused, ...]
    person: tuple[PersonNeeded, ...]


def plan_for_host(node: NodeDocument, findings: Sequence[Mapping[str, Any]], knowledge: Knowledge) -> HostPlan:
    """One host. findings: those of verdict fail that are about it, of groups too."""
    work, found = _work(node, findings, knowledge), jobs(node.sections)
    whole = tuple([Refused(line) for line in _refusals_of_host(node, work.chosen, knowledge)]) if work.remedies else ()
    return HostPlan(
        node.host,
        fact(node.sections, "node.boot_id"),
        knowledge.hashes.hash_of(node.sections, node.seen) if node.sections is not None else None,
        () if whole else work.remedies,
        () if whole else work.reboots,
        None if found is None else tuple(found),
        0.0 if whole else work.minutes,
        (*whole, *work.refused) if whole else work.refused,
        work.person,
        0.0 if whole else work.minutes_at_least,
    )


def _work(node: NodeDocument, findings: Sequence[Mapping[str, Any]], knowledge: Knowledge) -> _Work:
    """Made once for all nodes that are alike in findings, policy and planned facts, but for those whose policy the judge has to be asked about."""
    facts = planned_facts(node.sections)
    about = [(one["rule"], one["severity"], one["scope"], [(one.get("where") or {}).get(key) for key in LOOKED_AT], one["remedy"]) for one in findings]
    key = (_json_of(node.policy, knowledge), _encode(about), json_of(facts))
    known = knowledge.planned_before.get(key)
    if known is None:
        known, is_shared = _work_of(node, facts, findings, key, knowledge)
        if is_shared:
            knowledge.planned_before[key] = known
    return known


def _work_of(node: NodeDocument, facts: Any, findings: Sequence[Mapping[str, Any]], key: Any, knowledge: Knowledge) -> tuple[_Work, bool]:
    """(the work, whether it is that of every node of this key)."""
    chosen, is_shared = _sorted(node, facts, findings, key, knowledge)
    reasons = role_refusals(facts) if chosen.roles else {}
    refused = {role: _not_played(role, rules, reasons[role]) for role, rules in chosen.roles.items() if role in reasons}
    if refused:  # what their findings propose stays out of the policy
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
    """(sort_remedies, whether it is that of every node of this key). A pin of the inventory that clears a finding is its remedy, and the judge says so."""
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
    """Nodes of one envelope share their policy's object: it is written once."""
    known = knowledge.policies.get(id(policy))
    if known is None or known[0] is not policy:
        known = knowledge.policies[id(policy)] = (policy, _encode(policy))
    return known[1]


def _refusals_of_host(node: NodeDocument, sorted_out: RoleRemedies, knowledge: Knowledge) -> Iterator[str]:
    """Why nothing at all is applied: as remediate.yml refuses a node."""
    not_applied = "not applied: " + ", ".join(f"{role} (for {_listed(rules)})" for role, rules in sorted_out.roles.items())
    if node.status != "ok" or node.sections is None:
        yield visible(f"the node was not read: {node.status}, {node.message}; {not_applied}")
        return
    for one in knowledge.judge.refusals(node.host, node.groups, sorted_out.policy, node.sections, node.seen):
        yield visible(f"unhang_policy: {one['title']} ({one['rule']}): expected {one['expected']}, found {one['found']}; {not_applied}", 2000)


def _not_played(role: str, rules: Sequence[str], reason: str) -> str:
    return visible(f"role {role} (for {_listed(rules)}): {reason}", 2000)


def _listed(rules: Sequence[str]) -> str:
    return ", ".join(rules[:8]) + (f" and {len(rules) - 8} more" if len(rules) > 8 else "")
