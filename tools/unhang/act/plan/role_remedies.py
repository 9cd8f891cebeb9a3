"""Sorts findings by the catalogue's remedies: those that a role repairs, with the policy for it,
and those that need a person. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.act.plan.departures import Present, departs, reads_version
from unhang.act.role_changes.nccl_setting_check import Known
from unhang.core.schemas.policy import Policy, laid_over
from unhang.core.strict_json import value_at
from unhang.core.text import visible
from unhang.judge.rules.remedies import INVENTORY, PolicyRequest, merge_requests
from unhang.judge.rules.role_needs import NEEDS, reaches, unconfigured_text
from unhang.judge.rules.rules import SEVERITIES

# The order in playbooks/remediate.yml: kernel first, because a driver is built for it; packages are
# held last.
ROLE_ORDER = (
    "kernel",
    "gpu_driver",
    "fabric_manager",
    "gpu_reset",
    "nccl_profile",
    "build_toolchain",
    "gpu_binding",
    "host_tuning",
    "package_hold",
)
# Rules about these facts need torch's version of CUDA, because the nvcc to install depends on it.
ABOUT_NVCC = (
    ("cuda", "default"),
    ("cuda", "build_tools", "has_nvcc"),
    ("cuda", "build_tools", "nvcc"),
)
CUDA_OF_TORCH = ("torch.cuda", "cuda.version")
Path = tuple[str, ...]
Reads = Mapping[str, frozenset[Path]]
# Places in which the role nccl_profile changes no line: users' files, and running processes.
NOT_ITS_FILES = ("user_nccl_conf", "process", "container")
LONGEST = 1000


@dataclass(frozen=True)
class RoleRemedies:
    """roles: role -> rules, both in order. policy: for these roles. refused: remedies that are not
    applied though a role could, one line each. person: (rule, manual work). conflicts: rules whose
    remedies are not applied, because they contradict the inventory or another rule. turned_down:
    (rule, why) if the role refuses the node as a whole."""

    roles: dict[str, tuple[str, ...]]
    policy: dict[str, Any]
    refused: tuple[str, ...] = ()
    person: tuple[tuple[str, str], ...] = ()
    conflicts: tuple[str, ...] = ()
    turned_down: tuple[tuple[str, str], ...] = ()


def sort_remedies(
    findings: Iterable[Mapping[str, Any]],
    policy: Policy,
    present: Present,
    reads: Reads,
    known: Known,
    cleared: Collection[str] = (),
) -> RoleRemedies:
    """The findings of one host (verdict fail) that roles repair, and those that they do not.

    policy: of the inventory. present: versions and settings of the node. reads: rule -> paths of
    facts and policy that decide it. cleared: rules that the inventory's policy alone resolves;
    their proposals are ignored.
    """
    rows = [
        {**one, "remedy": _remedy(one, cleared)}
        for one in sorted(
            findings, key=lambda one: (SEVERITIES.index(one["severity"]), one["rule"])
        )
    ]
    with_role = [
        one for one in rows if one["remedy"].get("role") in ROLE_ORDER and _is_reachable(one)
    ]
    proposals = [
        PolicyRequest(one["rule"], one["remedy"]["policy"])
        for one in with_role
        if one["remedy"].get("policy")
    ]
    resolved = resolve_policy(policy, proposals)
    conflicts = [one for one in with_role if one["rule"] in resolved.conflicts]
    open_ones = [one for one in with_role if one["rule"] not in resolved.conflicts]
    planned = [
        one
        for one in open_ones
        if _acts(one, resolved.policy, present, reads.get(one["rule"], frozenset()), known)
    ]
    kept = {id(one) for one in (*planned, *conflicts)}
    by_hand = [
        (
            one,
            _lacking(
                one["remedy"].get("role"), resolved.policy, reads.get(one["rule"], frozenset())
            ),
        )
        for one in rows
        if id(one) not in kept
    ]
    chosen = {one["rule"] for one in planned}
    by_role = {
        role: tuple(sorted({one["rule"] for one in planned if one["remedy"]["role"] == role}))
        for role in ROLE_ORDER
    }
    return RoleRemedies(
        {role: rules for role, rules in by_role.items() if rules},
        resolve_policy(policy, [one for one in proposals if one.because in chosen]).policy,
        tuple(sorted({f"{one['rule']}: {resolved.conflicts[one['rule']]}" for one in conflicts})),
        tuple(sorted({(one["rule"], person_text(one, lacks)) for one, lacks in by_hand})),
        tuple(sorted({one["rule"] for one in conflicts})),
    )


def _remedy(finding: Mapping[str, Any], cleared: Collection[str]) -> dict[str, Any]:
    remedy = finding.get("remedy") or {}
    return {
        key: value
        for key, value in remedy.items()
        if key != "policy" or finding["rule"] not in cleared
    }


def person_text(finding: Mapping[str, Any], lacks: Sequence[str] = ()) -> str:
    """The manual work, in one line. lacks: keys of the policy; the role needs one of them."""
    remedy = finding["remedy"]
    role = remedy.get("role")
    if remedy.get("person"):
        return visible(remedy["person"], LONGEST)
    if role and not _is_reachable(finding):
        wanted = (remedy.get("policy") or {}).get("nccl") or {}
        version = (
            f"{wanted['min']} or newer"
            if wanted.get("min")
            else wanted.get("version") or "the policy's"
        )
        return visible(
            f"NCCL in {(finding.get('where') or {}).get('path')} is of no package: bring that"
            f" environment to {version}",
            LONGEST,
        )
    if lacks:
        return visible(unconfigured_text(role, finding.get("expected") or "", lacks), LONGEST)
    if role:
        return (
            f"role {role} changes nothing here under unhang_policy as it is: look at the evidence,"
            " and at the policy"
        )
    return "no remedy is known; look at the evidence"


def _lacking(role: str | None, policy: Policy, reads: frozenset[Path]) -> tuple[str, ...]:
    """Keys that the policy lacks and one of which the role needs, to repair a finding of a rule
    with these reads; () if none is missing."""
    about_nvcc = role == "build_toolchain" and any(
        path[: len(start)] == start for path in reads for start in ABOUT_NVCC
    )
    for keys in (NEEDS.get(role or "", ()), CUDA_OF_TORCH if about_nvcc else ()):
        if keys and not any(value_at(policy, path.split(".")) for path in keys):
            return keys
    return ()


def _is_reachable(finding: Mapping[str, Any]) -> bool:
    return reaches(str(finding["rule"]), finding["remedy"], finding.get("where") or {})


def _acts(
    finding: Mapping[str, Any],
    policy: Policy,
    present: Present,
    reads: frozenset[Path],
    known: Known,
) -> bool:
    """Whether the role, run with this policy, changes what was found."""
    role, proposal = finding["remedy"]["role"], finding["remedy"].get("policy")
    if _lacking(role, policy, reads):
        return False
    if role in ("gpu_binding", "gpu_reset") or (
        reads_version(role, reads) and departs(role, policy, present)
    ):
        return True
    if finding["scope"] != "node":
        return False
    if proposal or any(
        path[0] == "policy" and value_at(policy, path[1:]) is not None for path in reads
    ):
        return True
    return role == "nccl_profile" and _is_its_line(finding, policy, present, known)


def _is_its_line(
    finding: Mapping[str, Any], policy: Policy, present: Present, known: Known
) -> bool:
    """Whether the finding is about a line that the role nccl_profile disables: its name is set by
    the policy, or no program reads it."""
    where = finding.get("where") or {}
    name, number = (
        where.get("name"),
        str(where.get("path") or "").removeprefix("nccl.settings[").rstrip("]"),
    )
    if name not in {
        *known.not_real,
        *known.renamed,
        *(value_at(policy, ("nccl", "settings")) or {}),
    }:
        return False
    source = (
        present.settings[int(number)][1]
        if number.isdecimal() and int(number) < len(present.settings)
        else None
    )
    return source not in NOT_ITS_FILES


@dataclass(frozen=True)
class Resolved:
    """policy: the one to apply. conflicts: rule -> why none of its proposals is part of the
    policy."""

    policy: dict[str, Any]
    conflicts: dict[str, str] = field(default_factory=dict)


def resolve_policy(policy: Policy, proposals: Sequence[PolicyRequest]) -> Resolved:
    """The inventory's policy with all proposals that agree with it and with each other, the more
    severe rule first in `proposals`.

    The inventory is never overruled, and if one key of a rule's proposal is in conflict, the whole
    proposal is left out.
    """
    remaining, conflicts = list(proposals), dict[str, str]()
    while True:
        merged = merge_requests([*remaining, PolicyRequest(INVENTORY, policy)])
        if not merged.conflicts:
            return Resolved(laid_over(policy, merged.policy), conflicts)
        for conflict in merged.conflicts:
            wanted = ", and ".join(
                f"{side['because']} wants {side['wants']}" for side in conflict["sides"]
            )
            conflicts |= {
                side["because"]: f"{wanted}; {conflict['decides']}"
                for side in conflict["sides"]
                if side["because"] != INVENTORY
            }
        remaining = [one for one in remaining if one.because not in conflicts]
