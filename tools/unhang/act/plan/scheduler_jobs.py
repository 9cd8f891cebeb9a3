"""The jobs of each node as its scheduler lists them, beside the processes on its GPUs. Values in,
values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.act.plan.plan_document import HostPlan, Job, Plan

SCHEDULERS = ("slurm", "kubernetes")
# of one node, a plan has no more
MOST_JOBS, LONGEST = 1000, 200
# host -> its jobs, [] for none; hosts whose scheduler did not answer, or does not know them, are
# missing
SchedulerJobs = Mapping[str, Sequence[Job]]


def hosts_to_ask(entries: Iterable[HostPlan]) -> dict[str, list[str]]:
    """Scheduler -> the hosts that have its daemon."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.scheduler in SCHEDULERS:
            found.setdefault(entry.scheduler, []).append(entry.host)
    return found


def parse_answer(answer: Mapping[str, Any], hosts: Iterable[str]) -> dict[str, list[Job]]:
    """The jobs of the hosts that the scheduler knows. answer: of playbooks/scheduler_jobs.yml:
    {nodes: [name], jobs: {name: [{id, user}]}, names: {host: its name in the scheduler}}."""
    nodes, jobs = set(answer.get("nodes") or ()), answer.get("jobs") or {}
    names = {host: str((answer.get("names") or {}).get(host) or host) for host in hosts}
    return {
        host: [
            Job(None, str(one.get("user") or "")[:LONGEST] or None, None, (), _id(one))
            for one in (jobs.get(name) or ())[:MOST_JOBS]
        ]
        for host, name in names.items()
        if name in nodes
    }


def _id(job: Mapping[str, Any]) -> str:
    """The job's id; for one that the scheduler hides, its state."""
    return str(job.get("id") or job.get("state") or "unknown")[:LONGEST]


def with_jobs(entry: HostPlan, asked: SchedulerJobs) -> HostPlan:
    """The host with what its scheduler says. Its jobs are None, not known, if neither the scheduler
    nor a process on a GPU shows one and either was not asked."""
    if entry.scheduler == "none":
        return entry
    processes = [one for one in entry.jobs or () if not one.id]
    found = (*asked.get(entry.host, ()), *processes)
    is_known = entry.jobs is not None and entry.host in asked
    return replace(entry, jobs=found if found or is_known else None)


def plan_with_jobs(plan: Plan, asked: SchedulerJobs) -> Plan:
    """The plan with newer answers of the schedulers; its waves stay."""
    return replace(plan, hosts=tuple(with_jobs(entry, asked) for entry in plan.hosts))


def is_busy(entry: HostPlan) -> bool:
    """Whether users may have to wait for the node: it has jobs, or it is not known."""
    return entry.jobs is None or bool(entry.jobs)
