"""The plan of one host: each finding becomes a remedy under the host's policy, a refusal, or a task
for a person. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.act.plan.departures import fact
from unhang.act.plan.disruption import jobs, reboots, scheduler, versions
from unhang.act.plan.plan_document import HostPlan, PersonNeeded, Refused, Remedy
from unhang.act.plan.role_coverage import Remedying, WhoRepairs, who_repairs
from unhang.act.plan.role_remedies import RoleRemedies
from unhang.core.run.documents import NodeDocument
from unhang.core.schemas.configuration import hash_of_sections
from unhang.core.text import listed, visible

SHOWN_RULES = 8
Findings = Sequence[Mapping[str, Any]]


def plan_for_host(
    node: NodeDocument, findings: Findings, remedying: Remedying, same_as: str = ""
) -> HostPlan:
    """The plan of one host. findings: with verdict fail about it, also those of groups. same_as:
    the first host of the inventory that is this machine, "" for this one."""
    repairs = who_repairs(node, findings, remedying)
    chosen, jobs_now = repairs.chosen, jobs(node.sections)
    # a healthy node has them too: nobody needs to act
    remarks = {one["rule"] for one in findings if one["severity"] == "info"}
    roles, policy = list(chosen.roles), chosen.policy
    needed = reboots(roles, policy, node.sections) if roles else []
    refusing = [_not_played(role, *why) for role, why in repairs.refusing.items()]
    planned = HostPlan(
        node.host,
        fact(node.sections, "node.boot_id"),
        None if node.sections is None else hash_of_sections(node.sections),
        tuple(
            Remedy(role, policy, rules, *versions(role, policy, node.sections))
            for role, rules in chosen.roles.items()
        ),
        tuple(needed),
        None if jobs_now is None else tuple(jobs_now),
        tuple(Refused(line) for line in (*refusing, *chosen.refused)),
        tuple(PersonNeeded(rule, what) for rule, what in chosen.person if rule not in remarks),
        scheduler(node.sections),
    )
    whole = tuple(map(Refused, _refusals_of_host(node, repairs, same_as or node.host)))
    return (
        replace(
            planned,
            remedies=(),
            reboots=(),
            refused=(*whole, *planned.refused),
        )
        if whole
        else planned
    )


def _refusals_of_host(node: NodeDocument, repairs: WhoRepairs, same_as: str) -> Iterator[str]:
    """Reasons why nothing is applied to the host, the same as in remediate.yml. Empty for a node
    without changes."""
    if not repairs.chosen.roles:
        return
    if node.status != "ok" or node.sections is None:
        yield visible(
            f"the node was not read: {node.status}, {node.message}; {_not_applied(repairs.chosen)}"
        )
        return
    if same_as != node.host:
        yield visible(
            f"this is the same machine as {same_as}: machine id, boot and host name are the same;"
            f" {_not_applied(repairs.chosen)}"
        )
    for one in repairs.refusals:
        why = (
            f"unhang_policy: {one['title']} ({one['rule']}): the check found {one['found']}, and"
            f" needs {one['expected']}"
        )
        yield visible(f"{why}; {_not_applied(repairs.chosen)}", 2000)


def _not_applied(sorted_out: RoleRemedies) -> str:
    return "not applied: " + ", ".join(
        f"{role} (for {listed(rules, SHOWN_RULES)})" for role, rules in sorted_out.roles.items()
    )


def _not_played(role: str, rules: Sequence[str], reason: str) -> str:
    return visible(f"role {role} (for {listed(rules, SHOWN_RULES)}): {reason}", 2000)
