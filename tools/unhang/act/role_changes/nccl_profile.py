"""The NCCL settings that a node should have, from a named profile, the node's facts and the
policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from unhang.act.role_changes.nccl_setting_check import Known, is_read, setting_faults
from unhang.act.role_changes.nccl_values import COMPUTED, CannotTell, DesiredState
from unhang.core.schemas.policy import Policy, waivers_of
from unhang.core.schemas.reading import nearest
from unhang_node.base.versions.compare import compare_versions, holds


@dataclass
class ProfilePlan:
    """The settings to write. problems: reasons why nothing may be written, one line each. decided:
    names whose other lines are disabled."""

    profile: str
    conf: dict[str, str] = field(default_factory=dict)  # NCCL_*: read by NCCL from its file
    # variables that NCCL's file cannot set: they must be in the process's environment
    environment: dict[str, str] = field(default_factory=dict)
    decided: list[str] = field(default_factory=list)
    until: str | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Node:
    """The node's data for the plan. groups: of the inventory. today: an ISO date."""

    host: str
    groups: tuple[str, ...]
    sections: Mapping[str, Any]
    today: str


def plan_settings(
    node: Node,
    policy: Policy,
    profiles: Mapping[str, Any],
    known: Known,
    desired: DesiredState,
    allow_debug: bool = False,
) -> dict[str, Any]:
    """A ProfilePlan as a dict. policy: unhang_policy without faults; profiles: rows by name, as the
    role's vars have them."""
    nccl = policy.get("nccl") or {}
    names = [name.strip() for name in str(nccl.get("profile") or "").split("+") if name.strip()]
    plan = ProfilePlan("+".join(names))
    versions = sorted(
        {
            row["version"]
            for row in _section(node, "nccl").get("libraries") or ()
            if row.get("version")
        }
    )
    if not versions:
        plan.notes.append(
            "no NCCL was found on the node's own paths, so settings were not checked against its"
            " release"
        )
    for name in names:
        row = profiles.get(name)
        if row is None:
            plan.problems.append(
                f"{name!r} is not a profile{nearest(name, profiles)}; there are"
                f" {', '.join(sorted(profiles))}"
            )
            continue
        _add_profile(plan, node, policy, name, row, versions, desired)
    _leave_out_unread(plan, node, known)
    for name, given in (nccl.get("settings") or {}).items():
        _put(plan, name, str(given))
    chosen = [profiles.get(one) or {} for one in names]
    vetted = {name for row in chosen for name in row.get("settings", {})}
    plugin = {name for row in chosen for name in row.get("plugin_variables", ())}
    for name, given in {**plan.conf, **plan.environment}.items():
        by_policy = name in (nccl.get("settings") or {}) and name not in vetted
        plan.problems += setting_faults(
            known, name, given, versions, allow_debug=allow_debug or not by_policy, plugin=plugin
        )
    decided = {name for row in chosen for name in row.get("forbid", ())}
    plan.decided = sorted(
        {*decided, *plan.conf, *plan.environment, *known.not_real, *known.renamed}
    )
    return asdict(plan)


def _section(node: Node, name: str) -> Mapping[str, Any]:
    found = node.sections.get(name)
    return found if isinstance(found, Mapping) else {}


def _leave_out_unread(plan: ProfilePlan, node: Node, known: Known) -> None:
    """Omits torch settings that no torch release on the node reads, because a profile is for
    several releases."""
    versions = sorted(
        {
            row["torch"]
            for row in _section(node, "torch").get("environments") or ()
            if row.get("torch")
        }
    )
    for name in [name for name in plan.environment if name in known.torch and versions]:
        if not is_read(known.torch[name], versions, "generic"):
            del plan.environment[name]
            plan.notes.append(
                f"{name}: left out, for no torch of this node reads it ({', '.join(versions)})"
            )


def _put(plan: ProfilePlan, name: str, value: str) -> None:
    (plan.conf if name.startswith("NCCL_") else plan.environment)[name] = value


def _add_profile(
    plan: ProfilePlan,
    node: Node,
    policy: Policy,
    name: str,
    row: Mapping[str, Any],
    versions: Sequence[str],
    desired: DesiredState,
) -> None:
    if row.get("waived_rule"):
        _take_expiry(plan, node, policy, name, row["waived_rule"])
    for need, wanted in (row.get("needs") or {}).items():
        found = _section(node, "network").get(need)
        if found is not wanted:
            plan.problems.append(
                f"profile {name} needs {need} to be {str(wanted).lower()}, and it is"
                f" {str(found).lower()} on this node; choose another profile"
            )
    for variable, given in row.get("settings", {}).items():
        if not isinstance(given, Mapping):
            _put(plan, variable, str(given))
        elif _applies(given, _section(node, "network"), versions):
            _compute(plan, node, name, variable, given["computed"], desired)


def _applies(given: Mapping[str, Any], network: Mapping[str, Any], versions: Sequence[str]) -> bool:
    if given.get("when") == "several_interfaces":
        return len(network.get("usable_interfaces") or ()) > 1
    if "before_nccl" in given:
        return any(
            holds(compare_versions(version, given["before_nccl"], "nccl"), "<")
            for version in versions
        )
    return True


def _compute(
    plan: ProfilePlan, node: Node, profile: str, variable: str, how: str, desired: DesiredState
) -> None:
    work_out = COMPUTED.get(how)
    if work_out is None:
        plan.problems.append(
            f"profile {profile} computes {variable} by {how}, which is not one of"
            f" {', '.join(COMPUTED)}"
        )
        return
    try:
        answer = work_out(_section(node, "network"), desired)
    except CannotTell as problem:
        plan.problems.append(f"profile {profile}: {variable}: {problem}")
        return
    plan.notes += [f"{variable}: {note}" for note in answer.notes]
    if answer.value is not None:
        _put(plan, variable, answer.value)


def _take_expiry(plan: ProfilePlan, node: Node, policy: Policy, profile: str, rule: str) -> None:
    """Adds the expiry of a workaround, which is that of the waiver for its rule: the audit and the
    role use one date."""
    days = [
        one.row["until"]
        for one in waivers_of(policy)
        if one.rule == rule and one.covers(node.host, node.groups, {})
    ]
    if not days:
        missing = f"the rule {rule} is not waived for {node.host}"
        plan.problems.append(
            f"profile {profile}: {missing}; add one with reason, by and until to"
            " unhang_policy.waivers"
        )
        return
    plan.until = max(days)
    if plan.until < node.today:
        plan.problems.append(
            f"profile {profile}: its waiver of {rule} ended on {plan.until}; name another profile,"
            " or give the waiver a new date and reason"
        )
