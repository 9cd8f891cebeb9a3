"""Makes the plan of a judged run: reads it node by node, plans each host that has a finding, and puts those that have remedies into waves."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang import catalogue as own_tables
from unhang.errors import UserError
from unhang.judge.compiled_catalogue import Catalogue
from unhang.judge.documents import NodeDocument
from unhang.judge.run_input import RunInput, natural, read_nodes, read_run_input
from unhang.plan.asked_limits import group_limits, known_rules, most_unavailable, named_hosts
from unhang.plan.disruption import kind_of, steps_of
from unhang.plan.host_plan import Knowledge, plan_for_host
from unhang.plan.nccl_known import read_known
from unhang.plan.plan_document import GroupLimit, HostPlan, Plan, PlanLimits, PlannedRun, StepMinutes
from unhang.plan.policy_check import PolicyJudge
from unhang.plan.waves import WaveLimits, plan_waves
from unhang.report.folding import hosts_of
from unhang.report.run import read_findings
from unhang.text import visible

MAX_UNAVAILABLE, FLOOR = "10%", "0"
MAX_AGE_S = 24 * 3600


@dataclass(frozen=True)
class PlanOptions:
    """What was asked for. max_unavailable, floor: N or N%; group_limits: GROUP=N; only: ids of rules; except_: node sets, groups, wildcards;

    hosts: those alone, None for all.
    """

    max_unavailable: str = MAX_UNAVAILABLE
    floor: str = FLOOR
    group_limits: Sequence[str] = ()
    only: Sequence[str] = ()
    except_: Sequence[str] = ()
    max_age_s: int = MAX_AGE_S
    hosts: frozenset[str] | None = None


@dataclass
class _Fleet:
    """What one pass over the nodes leaves behind."""

    entries: list[HostPlan] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)  # of hosts that have remedies
    answered: int = 0
    members: dict[str, list[str]] = field(default_factory=dict)  # group -> hosts that answered
    all_members: dict[str, list[str]] = field(default_factory=dict)


def plan_run(
    folder: Path, rules: Catalogue, options: PlanOptions | None = None, findings: Mapping[str, Any] | None = None, measured: Sequence[StepMinutes] = ()
) -> Plan:
    """The plan of a run folder. findings: of its findings.json, where they were read already. Raises UserError, OSError.

    measured: how long steps took in this installation's rollouts; the table remedy_steps stands in for the others.

    The day is the one that the run was judged on: same findings, same plan.
    """
    gc.disable()  # nothing here is cyclic, and a million small objects make each collection slow
    try:
        return _plan(folder, rules, options or PlanOptions(), findings or read_findings(folder), measured)
    finally:
        gc.enable()


def _plan(folder: Path, rules: Catalogue, options: PlanOptions, findings: Mapping[str, Any], measured: Sequence[StepMinutes]) -> Plan:
    run = read_run_input(folder)
    refuse_another_policy(findings)
    only = known_rules(options.only, {rule.id for rule in rules.rules} | set(findings.get("totals_by_rule") or {}))
    about = _by_host(findings["findings"], only)
    steps = step_minutes(measured)
    fleet = _pass(run, about, knowledge_of(rules, findings["run"]["judged"], steps))
    hosts = sorted({*run.document["hosts"], *run.files}, key=natural)
    left_out = named_hosts(options.except_, set(hosts), fleet.all_members, "--except")
    planned = [one for one in fleet.entries if one.host not in left_out and (options.hosts is None or one.host in options.hosts)]
    entries = tuple(sorted(planned, key=lambda one: natural(one.host)))
    kinds = {one.host: fleet.kinds[one.host] for one in entries if one.remedies}
    most, floor = most_unavailable(options.max_unavailable, options.floor, fleet.answered) if fleet.answered else (1, 0)
    limited = group_limits(options.group_limits, fleet.members)
    limits = PlanLimits(
        most,
        floor,
        fleet.answered,
        options.max_age_s,
        tuple(GroupLimit(group, limit) for group, limit in sorted(limited.items(), key=lambda one: natural(one[0]))),
        only,
        tuple(sorted(left_out, key=natural)),
        tuple(sorted(options.hosts or (), key=natural)),
    )
    waves = plan_waves(kinds, WaveLimits(most, tuple((limited[one.group], frozenset(fleet.members[one.group])) for one in limits.groups)))
    return Plan(_run(findings), findings["run"]["judged"], limits, entries, tuple(waves), steps_of(entries, steps))


def refuse_another_policy(findings: Mapping[str, Any]) -> None:
    """Roles bring nodes to the inventory's policy, and are proved by it: findings by another one are not what they repair. Raises UserError."""
    other = (findings.get("judged_by") or {}).get("policy")
    if other:
        raise UserError(
            f"expected findings by the inventory's own unhang_policy, found a run that was judged by {visible(other, 200)}; "
            "write that policy into the inventory and audit again, or judge the run without --policy"
        )


def knowledge_of(rules: Catalogue, day: str, steps: Mapping[str, StepMinutes] | None = None) -> Knowledge:
    """What planning a host needs beside it. steps: of step_minutes(). Raises UserError."""
    minutes = {step: one.minutes for step, one in (step_minutes() if steps is None else steps).items()}
    return Knowledge({rule.id: rule.decision_reads for rule in rules.rules}, read_known(), PolicyJudge(rules, day), minutes)


def step_minutes(measured: Sequence[StepMinutes] = ()) -> dict[str, StepMinutes]:
    """By step: what this installation measured, else what the table remedy_steps assumes."""
    assumed = {step: StepMinutes(step, row.get("minutes")) for step, row in own_tables.table("remedy_steps").items()}
    return assumed | {one.step: one for one in measured if one.step in assumed}


def _run(findings: Mapping[str, Any]) -> PlannedRun:
    run = findings["run"]
    try:
        written = datetime.datetime.fromisoformat(run.get("started") or "")
    except ValueError:
        raise UserError(f"expected the time when the run began in findings.json, found {run.get('started')!r}: it would have no age; audit again") from None
    started = written.astimezone(datetime.UTC) if written.tzinfo else written.replace(tzinfo=datetime.UTC)
    return PlannedRun(run["id"], started.isoformat().replace("+00:00", "Z"), run.get("finished"))


def _by_host(findings: Sequence[Mapping[str, Any]], only: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Failed findings by host, those of groups under each host that they name."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in findings:
        if one["verdict"] == "fail" and (not only or one["rule"] in only):
            for host in hosts_of(one):
                found.setdefault(host, []).append(one)
    return found


def _pass(run: RunInput, about: Mapping[str, list[Mapping[str, Any]]], knowledge: Knowledge) -> _Fleet:
    """One look at each node; documents are not kept."""
    fleet = _Fleet()
    for node in read_nodes(run):
        _look_at(fleet, node, about, knowledge)
    return fleet


def _look_at(fleet: _Fleet, node: NodeDocument, about: Mapping[str, list[Mapping[str, Any]]], knowledge: Knowledge) -> None:
    for group in node.groups:
        fleet.all_members.setdefault(group, []).append(node.host)
    if node.status == "ok":
        fleet.answered += 1
        for group in node.groups:
            fleet.members.setdefault(group, []).append(node.host)
    if node.host in about:
        entry = plan_for_host(node, about[node.host], knowledge)
        fleet.entries.append(entry)
        if entry.remedies:
            fleet.kinds[node.host] = kind_of(node.sections)
