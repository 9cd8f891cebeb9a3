"""Who repairs the findings of a host: roles, under which policy, or a person. Computed here alone:
the plan and the causes of a run both use it.

A plan promises only what a role changes: without a version gpu_driver does not change the driver,
and no role changes a library inside a Python environment. Otherwise healthy nodes would be drained
for a note that no role resolves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unhang.act.plan.departures import fact, present_in
from unhang.act.plan.policy_check import PolicyJudge
from unhang.act.plan.role_remedies import LONGEST, Reads, RoleRemedies, sort_remedies
from unhang.act.role_changes import driver_inputs, driver_refusals, kernel_plan
from unhang.act.role_changes.nccl_setting_check import Known, read_known
from unhang.audit.rules.compiled_catalogue import Catalogue
from unhang.audit.rules.found import Found
from unhang.core.run.documents import NodeDocument
from unhang.core.run.run_input import RunInput, read_node
from unhang.core.text import visible

Finding = Mapping[str, Any]
# All facts that decide whether a role refuses a node. Whole sections are large, and this is
# computed for each node that is judged.
_NODE = (
    "virtualization.is_container",
    "virtualization.kind",
    "image.kind",
    "image.evidence",
    "os.family",
    "kubernetes.gpu_operator",
)
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
            rows = [
                {
                    "rule": one.rule,
                    "severity": one.severity,
                    "scope": one.scope,
                    "where": one.where,
                    "remedy": one.remedy,
                    "expected": one.expected,
                }
                for one in on_host
            ]
            found[host] = who_repairs(
                read_node(host, run.files[host]), rows, remedying
            ).for_people()
    return found


def role_refusals(sections: Any) -> dict[str, str]:
    """Role -> why it would refuse the node as a whole, whatever its policy; only roles that change
    kernel or driver. sections: typed, None if not read."""
    if sections is None:
        return {}
    node = _node(sections)
    kernel = _kernel_refusal(sections, node)
    driver = _driver_refusal(sections, node)
    return ({"kernel": kernel} if kernel else {}) | (
        dict.fromkeys(_DRIVER_ROLES, driver) if driver else {}
    )


def _node(sections: Any) -> dict[str, dict[str, Any]]:
    node: dict[str, dict[str, Any]] = {}
    for path in _NODE:
        part, _, name = path.partition(".")
        node.setdefault(part, {})[name] = fact(sections, f"node.{path}")
    return node


def _kernel_refusal(sections: Any, node: dict[str, Any]) -> str | None:
    boot = {
        name: fact(sections, f"kernel.boot.{name}") for name in ("can_clear_one_shot", "why_not")
    }
    # the role itself reads facts that are missing here
    loader = {
        "can_clear_one_shot": boot["can_clear_one_shot"] is not False,
        "why_not": boot["why_not"],
    }
    known = {"node": node, "kernel": {"out_of_tree": fact(sections, "kernel.out_of_tree")}}
    lines = kernel_plan.refusals(kernel_plan.KernelInputs(known, {}, trial={"loader": loader}))
    return lines[0] if lines else None


def _driver_refusal(sections: Any, node: dict[str, Any]) -> str | None:
    known = {"node": node, "driver": {"install_method": fact(sections, "driver.install_method")}}
    inputs = driver_inputs.DriverInputs("", known, {}, {})
    found = [*driver_refusals.ownership(inputs), *driver_refusals.image(inputs)]
    return (
        f"it needs {found[0]['expected']}; the check found: {found[0]['found']}; {found[0]['next']}"
        if found
        else None
    )
