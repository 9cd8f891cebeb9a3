"""Who repairs the findings of a host: roles, under which policy, or a person. Computed here alone:
the plan and the causes of a run both use it.

A plan promises only what a role changes: without a version gpu_driver does not change the driver,
and no role changes a library inside a Python environment. Otherwise healthy nodes would be drained
for a note that no role resolves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from unhang.act.plan.departures import fact, present_in
from unhang.act.plan.policy_check import PolicyJudge
from unhang.act.plan.role_remedies import LONGEST, Reads, RoleRemedies, sort_remedies
from unhang.act.role_changes.nccl_setting_check import Known, read_known
from unhang.act.role_changes.node_refusals import image, kernel_refusals, ownership
from unhang.core.run.documents import NodeDocument
from unhang.core.run.run_input import RunInput, read_node
from unhang.core.text import visible
from unhang.judge.rules.compiled_catalogue import Catalogue
from unhang.judge.rules.found import Found

Finding = Mapping[str, Any]
_READ = ("rule", "severity", "scope", "where", "remedy", "expected")
_DRIVER_ROLES = ("gpu_driver", "fabric_manager")


@dataclass(frozen=True)
class Remedying:
    """What decides who repairs, besides the host. reads: rule -> paths that decide it; judge:
    judges policies."""

    reads: Reads
    known: Known
    judge: PolicyJudge


@dataclass(frozen=True)
class WhoRepairs:
    """chosen: the findings by role and by person. refusing: role that refuses this node -> (its
    rules, the reason). refusals: why the policy must not be applied to this node, so that no role
    acts; rows of PolicyJudge.refusals()."""

    chosen: RoleRemedies
    refusing: Mapping[str, tuple[tuple[str, ...], str]]
    refusals: Sequence[Mapping[str, Any]]

    def for_people(self) -> RoleRemedies:
        """The findings that roles repair, and why a role leaves the others of its own to a
        person."""
        turned_down = [
            (rule, visible(f"role {role} refuses this node: {why}", LONGEST))
            for role, (rules, why) in self.refusing.items()
            for rule in rules
        ]
        if not self.refusals:
            return replace(self.chosen, turned_down=tuple(sorted(turned_down)))
        faults = "; ".join(f"{one['title']} ({one['rule']})" for one in self.refusals)
        why = visible(
            f"no role acts on this node, for its unhang_policy is refused: {faults}; correct"
            " unhang_policy first",
            LONGEST,
        )
        return replace(
            self.chosen,
            roles={},
            turned_down=(
                *sorted(turned_down),
                *((rule, why) for rules in self.chosen.roles.values() for rule in rules),
            ),
        )


def remedying_of(catalogue: Catalogue, today: str) -> Remedying:
    """today: the day for which waivers are judged."""
    return Remedying(
        {rule.id: rule.decision_reads for rule in catalogue.rules},
        read_known(),
        PolicyJudge(catalogue, today),
    )


def who_repairs(
    node: NodeDocument, findings: Sequence[Finding], remedying: Remedying
) -> WhoRepairs:
    """findings: with verdict fail about this host, also those of groups."""
    chosen = _by_role(node, findings, remedying)
    reasons = role_refusals(node.sections) if chosen.roles else {}
    refusing = {
        role: (rules, reasons[role]) for role, rules in chosen.roles.items() if role in reasons
    }
    if refusing:  # the proposals of these findings are not merged into the policy
        others = _by_role(
            node,
            [one for one in findings if (one["remedy"] or {}).get("role") not in refusing],
            remedying,
        )
        chosen = replace(others, person=chosen.person)
    applied = chosen.policy if remedying.judge.is_usable(node.policy) else node.policy
    refusals = (
        remedying.judge.refusals(node.host, node.groups, applied, node.sections)
        if chosen.roles
        else []
    )
    return WhoRepairs(chosen, refusing, refusals)


def _by_role(node: NodeDocument, findings: Sequence[Finding], remedying: Remedying) -> RoleRemedies:
    """If a pin of the inventory resolves a finding, the pin is its remedy, as for the judge."""
    present, policy = (
        present_in(node.sections),
        node.policy if remedying.judge.is_usable(node.policy) else {},
    )
    found = sort_remedies(findings, policy, present, remedying.reads, remedying.known)
    cleared = (
        remedying.judge.cleared(node.host, node.groups, policy, node.sections, found.conflicts)
        if found.conflicts
        else frozenset[str]()
    )
    return (
        sort_remedies(findings, policy, present, remedying.reads, remedying.known, cleared)
        if cleared
        else found
    )


def repairs_of_run(
    run: RunInput, catalogue: Catalogue, today: str, findings: Mapping[str, Sequence[Found]]
) -> dict[str, RoleRemedies]:
    """Host -> who repairs its findings. findings: of the hosts that are asked about; their files
    are read again, one at a time."""
    remedying = remedying_of(catalogue, today)
    found = {}
    for host, on_host in findings.items():
        if host in run.files:
            rows = [{name: getattr(one, name) for name in _READ} for one in on_host]
            found[host] = who_repairs(
                read_node(host, run.files[host]), rows, remedying
            ).for_people()
    return found


def role_refusals(sections: Any) -> dict[str, str]:
    """Role -> why it would refuse the node as a whole, whatever its policy; only roles that change
    kernel or driver. sections: typed, None if not read."""
    if sections is None:
        return {}
    known = partial(fact, sections)
    loader = {
        # the role itself reads facts that are missing here
        "can_clear_one_shot": known("kernel.boot.can_clear_one_shot") is not False,
        "why_not": known("kernel.boot.why_not"),
    }
    kernel = kernel_refusals(known, loader)[:1]
    driver = [
        f"the check found: {one['found']}; it needs {one['expected']}; {one['next']}"
        for one in (*ownership(known, ""), *image(known, ""))
    ][:1]
    refusing = [("kernel", kernel), *((role, driver) for role in _DRIVER_ROLES)]
    return {role: why[0] for role, why in refusing if why}
