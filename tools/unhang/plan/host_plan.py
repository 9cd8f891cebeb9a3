"""The plan of one host: its findings become remedies under one policy, or are refused, or are named for a person. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from unhang.judge.documents import NodeDocument
from unhang.plan.departures import fact, present_in
from unhang.plan.disruption import jobs, minutes, minutes_at_least, reboots, versions
from unhang.plan.nccl_known import Known
from unhang.plan.plan_document import HostPlan, PersonNeeded, Refused, Remedy
from unhang.plan.policy_check import PolicyJudge
from unhang.plan.role_refusals import role_refusals
from unhang.plan.role_remedies import LOOKED_AT, Reads, RoleRemedies, sort_remedies
from unhang.schemas.configuration import hash_of_sections
from unhang.text import visible

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Knowledge:
    """What planning knows beside a host. reads: rule -> paths that decide it; judge: of policies; measured: step -> minutes."""

    reads: Reads
    known: Known
    judge: PolicyJudge
    measured: Mapping[str, float | None]
    sorted_before: dict[Any, RoleRemedies] = field(default_factory=dict)  # most nodes of a fleet are alike
    hashed: dict[Any, dict[bytes, bytes]] = field(default_factory=dict)  # what hash_of_sections remembers
    policies: dict[int, tuple[Mapping[str, Any], bytes]] = field(default_factory=dict)  # id -> the policy, which nodes share, and its JSON


def plan_for_host(node: NodeDocument, findings: Sequence[Mapping[str, Any]], knowledge: Knowledge) -> HostPlan:
    """One host. findings: those of verdict fail that are about it, of groups too."""
    chosen = _sorted(node, findings, knowledge)
    reasons = role_refusals(node.sections) if chosen.roles else {}
    refused = {role: _not_played(role, rules, reasons[role]) for role, rules in chosen.roles.items() if role in reasons}
    if refused:  # what their findings propose stays out of the policy
        kept = [one for one in findings if (one["remedy"] or {}).get("role") not in refused]
        chosen = replace(_sorted(node, kept, knowledge), person=chosen.person)
    whole = list(_refusals_of_host(node, chosen, knowledge)) if chosen.roles else []
    roles = {} if whole else chosen.roles
    needed = reboots(roles, chosen.policy, node.sections) if roles else []
    found = jobs(node.sections)
    return HostPlan(
        node.host,
        fact(node.sections, "node.boot_id"),
        hash_of_sections(node.sections, knowledge.hashed) if node.sections is not None else None,
        tuple(Remedy(role, chosen.policy, rules, *versions(role, chosen.policy, node.sections)) for role, rules in roles.items()),
        tuple(needed),
        None if found is None else tuple(found),
        minutes(list(roles), needed, knowledge.measured) if roles else 0.0,
        tuple(Refused(line) for line in (*whole, *refused.values(), *chosen.refused)),
        tuple(PersonNeeded(rule, what) for rule, what in chosen.person),
        minutes_at_least(list(roles), needed, knowledge.measured) if roles else 0.0,
    )


def _sorted(node: NodeDocument, findings: Sequence[Mapping[str, Any]], knowledge: Knowledge) -> RoleRemedies:
    """sort_remedies, once for all nodes that are alike in what it looks at. A pin of the inventory that clears a finding is its remedy."""
    present = present_in(node.sections)
    about = [(one["rule"], one["severity"], one["scope"], [(one.get("where") or {}).get(key) for key in LOOKED_AT], one["remedy"]) for one in findings]
    key, cleared = (_json_of(node.policy, knowledge), _encode(about), present), frozenset[str]()
    if key not in knowledge.sorted_before:
        knowledge.sorted_before[key] = sort_remedies(findings, node.policy, present, knowledge.reads, knowledge.known)
    if conflicts := knowledge.sorted_before[key].conflicts:
        cleared = knowledge.judge.cleared(node.host, node.groups, node.policy, node.sections, conflicts)
    if cleared and (key, cleared) not in knowledge.sorted_before:
        knowledge.sorted_before[key, cleared] = sort_remedies(findings, node.policy, present, knowledge.reads, knowledge.known, cleared)
    return knowledge.sorted_before[(key, cleared) if cleared else key]


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
    for one in knowledge.judge.refusals(node.host, node.groups, sorted_out.policy, node.sections):
        yield visible(f"unhang_policy: {one['title']} ({one['rule']}): expected {one['expected']}, found {one['found']}; {not_applied}", 2000)


def _not_played(role: str, rules: Sequence[str], reason: str) -> str:
    return visible(f"role {role} (for {_listed(rules)}): {reason}", 2000)


def _listed(rules: Sequence[str]) -> str:
    return ", ".join(rules[:8]) + (f" and {len(rules) - 8} more" if len(rules) > 8 else "")
