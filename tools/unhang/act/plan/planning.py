"""Makes the plan of a judged run: reads it node by node, plans each host that has a finding, and
assigns hosts with remedies to waves."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.act.plan.asked_limits import group_limits, most_unavailable, named_hosts
from unhang.act.plan.departures import fact
from unhang.act.plan.disruption import kind_of
from unhang.act.plan.host_plan import plan_for_host
from unhang.act.plan.plan_document import (
    GroupLimit,
    HostPlan,
    Plan,
    PlanLimits,
    PlannedRun,
)
from unhang.act.plan.planned_findings import read_planned_findings
from unhang.act.plan.role_coverage import Remedying, remedying_of
from unhang.act.plan.scheduler_jobs import SchedulerJobs, hosts_to_ask, is_busy, with_jobs
from unhang.act.plan.waves import WaveLimits, plan_waves
from unhang.core.errors import UserError
from unhang.core.run.documents import NodeDocument
from unhang.core.run.findings import blamed_hosts
from unhang.core.run.run_input import RunInput, natural, read_nodes, read_run_input
from unhang.core.text import visible
from unhang.judge.rules.compiled_catalogue import Catalogue
from unhang_node.base.nvml.names import domain_name

MAX_UNAVAILABLE, FLOOR = "10%", "0"
TRAYS = 1  # of an NVLink domain out of service at once: its jobs span the rack


@dataclass(frozen=True)
class PlanOptions:
    """The operator's options. max_unavailable, floor: N or N%; group_limits: GROUP=N; only: ids of
    rules; except_: node sets, groups, wildcards; hosts: the only ones to plan, None for all."""

    max_unavailable: str = MAX_UNAVAILABLE
    floor: str = FLOOR
    group_limits: Sequence[str] = ()
    only: Sequence[str] = ()
    except_: Sequence[str] = ()
    hosts: frozenset[str] | None = None


@dataclass
class _Fleet:
    """The result of one pass over the nodes."""

    entries: list[HostPlan] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)  # kinds of the hosts that have remedies
    answered: set[str] = field(default_factory=set)
    members: dict[str, list[str]] = field(default_factory=dict)  # group -> hosts that answered
    all_members: dict[str, list[str]] = field(default_factory=dict)
    domains: dict[str, list[str]] = field(default_factory=dict)  # name -> hosts that answered
    machines: dict[Any, str] = field(default_factory=dict)  # what a machine is -> its first host


@contextmanager
def without_collections() -> Iterator[None]:
    """Switches garbage collection off for a while: no object of a plan is cyclic, and a million
    small objects make each collection slow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@without_collections()
def plan_run(
    folder: Path,
    rules: Catalogue,
    options: PlanOptions = PlanOptions(),
    findings: Mapping[str, Any] | None = None,
    ask: Callable[[Mapping[str, Sequence[str]]], SchedulerJobs] = lambda asked: {},
) -> Plan:
    """The plan of a run folder. findings: of its findings.json, if already read. ask: scheduler ->
    its hosts, to their jobs now. Waivers are applied as on the day of the judgement: the same
    findings and jobs give the same plan. Raises UserError, OSError."""
    findings, run = findings or read_planned_findings(folder), read_run_input(folder)
    refuse_another_policy(findings)
    only = tuple(sorted(options.only))
    about = _by_host(findings, only)
    fleet = _pass(run, about, remedying_of(rules, findings["run"]["judged"]))
    hosts = {*run.document["hosts"], *run.files}
    left_out = named_hosts(options.except_, hosts, fleet.all_members, "--except")
    planned = [
        one
        for one in fleet.entries
        if one.host not in left_out and (options.hosts is None or one.host in options.hosts)
    ]
    asked = ask(to_ask) if (to_ask := hosts_to_ask(fleet.entries)) else {}
    entries = tuple(
        with_jobs(one, asked) for one in sorted(planned, key=lambda one: natural(one.host))
    )
    kinds = {one.host: fleet.kinds[one.host] for one in entries if one.remedies}
    limits = _limits(options, fleet, only, left_out)
    groups = tuple(
        (one.max_unavailable, frozenset(one.hosts or fleet.members[one.group]))
        for one in limits.groups
    )
    busy = frozenset(one.host for one in entries if is_busy(one))
    waves = plan_waves(kinds, WaveLimits(limits.max_unavailable, groups, busy))
    return Plan(
        _run(findings),
        findings["run"]["judged"],
        limits,
        entries,
        tuple(waves),
    )


def _limits(
    options: PlanOptions, fleet: _Fleet, only: tuple[str, ...], left_out: Set[str]
) -> PlanLimits:
    """left_out: hosts of --except. Raises UserError for limits that cannot be kept."""
    answered = len(fleet.answered)
    most, floor = (
        most_unavailable(options.max_unavailable, options.floor, answered) if answered else (1, 0)
    )
    racks = {name: hosts for name, hosts in fleet.domains.items() if len(hosts) > 1}
    limited = dict.fromkeys(racks, TRAYS) | group_limits(
        options.group_limits, {**racks, **fleet.members}
    )
    return PlanLimits(
        most,
        floor,
        answered,
        tuple(
            GroupLimit(group, limited[group], tuple(sorted(racks.get(group, ()), key=natural)))
            for group in sorted(limited, key=natural)
        ),
        only,
        tuple(sorted(left_out, key=natural)),
        tuple(sorted(options.hosts or (), key=natural)),
    )


def refuse_another_policy(findings: Mapping[str, Any]) -> None:
    """Refuses findings under another policy than the inventory's, because roles apply the
    inventory's and are proved by it. Raises UserError."""
    other = (findings.get("judged_by") or {}).get("policy")
    if other:
        raise UserError(
            f"the run was judged by {visible(other, 200)}, not by the inventory's own"
            " unhang_policy; write that policy into the inventory and audit again, or judge the"
            " run without --policy"
        )


def _run(findings: Mapping[str, Any]) -> PlannedRun:
    run = findings["run"]
    try:
        written = datetime.datetime.fromisoformat(run.get("started") or "")
    except ValueError:
        raise UserError(
            "findings.json must give the time when the run began, and gives"
            f" {run.get('started')!r}; audit again"
        ) from None
    started = (
        written.astimezone(datetime.UTC) if written.tzinfo else written.replace(tzinfo=datetime.UTC)
    )
    return PlannedRun(run["id"], started.isoformat().replace("+00:00", "Z"), run.get("finished"))


def _by_host(
    findings: Mapping[str, Any], only: Sequence[str]
) -> dict[str, list[Mapping[str, Any]]]:
    """Failed findings by host, those of groups under each host to which they count."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one, hosts in zip(findings["findings"], blamed_hosts(findings), strict=True):
        if one["verdict"] == "fail" and (not only or one["rule"] in only):
            for host in hosts:
                found.setdefault(host, []).append(one)
    return found


def _pass(
    run: RunInput, about: Mapping[str, list[Mapping[str, Any]]], remedying: Remedying
) -> _Fleet:
    """Reads each node once; only one document is in memory at a time."""
    fleet = _Fleet()
    for node in read_nodes(run):
        same_as = _first_name(fleet, node)
        _count(fleet, node, is_first=same_as == node.host)
        if node.host in about:
            entry = plan_for_host(node, about[node.host], remedying, same_as)
            fleet.entries.append(entry)
            fleet.kinds |= {node.host: kind_of(node.sections)} if entry.remedies else {}
    return fleet


def _first_name(fleet: _Fleet, node: NodeDocument) -> str:
    """The first host of the inventory that is this machine: a clone has another boot id, a
    container beside it another machine id or name."""
    same = ("node.machine_id", "node.boot_id", "node.hostname")
    machine = tuple(fact(node.sections, path) for path in same)
    return fleet.machines.setdefault(machine, node.host) if all(machine) else node.host


def _count(fleet: _Fleet, node: NodeDocument, is_first: bool) -> None:
    """Counts a node that answered, in the fleet and in each of its groups. is_first: no earlier
    host is the same machine."""
    for group in node.groups:
        fleet.all_members.setdefault(group, []).append(node.host)
    if node.status == "ok" and is_first:
        fleet.answered.add(node.host)
        for group in node.groups:
            fleet.members.setdefault(group, []).append(node.host)
        if domain := nvlink_domain(node.sections):
            fleet.domains.setdefault(domain, []).append(node.host)


def nvlink_domain(sections: Any) -> str:
    """The name of the NVLink domain, a rack of trays, that a node is a part of: by the cluster UUID
    of its GPUs. "" where they report none or several. sections: typed."""
    found = {fact(one, "fabric.cluster") for one in fact(sections, "gpus.devices") or ()} - {None}
    return domain_name(found.pop()) if len(found) == 1 else ""
