"""The checks of jobs of several pods or services: what must be the same in all of them, what each
needs, and how many they are. Values in, values out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from unhang.jobs.lint.knowledge import Findings, row_of
from unhang.jobs.lint.launch import Launch, is_loopback
from unhang.jobs.lint.launch_faults import check_launches, fault, meeting_points, unfit
from unhang.jobs.lint.placed import Text, placed
from unhang.jobs.lint.yaml_launches import COUNTS, IMAGE, Job, Role
from unhang.jobs.lint.yaml_nodes import Map, parts_of

_OF_FABRIC = re.compile(r"(?:NCCL|FI|UCX)_[A-Z0-9_]{1,80}")
_OF_LOGS = re.compile(r"_(?:LOG|DEBUG|DUMP|STATS|TRACE|HOSTID|TOPO_FILE|CONF_FILE)")
_OF_DEVICES = re.compile(r"_(?:NET_DEVICES|IFACE|IFNAME|HCA|DOMAIN)(?:_|$)")
_IN_ONE = re.compile(r"\d{1,3}(?:,\s?\d{1,3}){1,15}")


def check_jobs(jobs: Sequence[Job], launches: Sequence[Launch]) -> Findings:
    """The findings of a file's jobs, with all their launches."""
    meets = [one.meets for one in launches if one.meets]
    reached = not all(map(is_loopback, meets))
    for job in jobs:
        for group in [job.launches] if job.on_one else [role.launches for role in job.roles]:
            yield from check_launches(group, reached=reached)
        for role in job.roles:
            yield from unfit(role, "relations_of_containers")
        for one in job.texts:
            if isinstance(one, Text) and one.how in ("int", "float", "bool"):
                yield fault("env_not_text", one)
        yield from _shared_devices(job)
        for one in job.absent:
            yield fault("no_such_pod", one)
        if job.row:
            yield from _pods(job)
            yield from _unlike_pods(job)
            yield from meeting_points(
                [one for one in job.launches if one.program or one.variable("WORLD_SIZE")]
            )
        yield from _ranks(job)


def _shared_devices(job: Job) -> Findings:
    """GPUs on which two services that run together start ranks, and several in one name."""
    taken: dict[str, Role] = {}
    for role in job.roles:
        for one in filter(_IN_ONE.fullmatch, role.ids):
            names = ", ".join(map(repr, re.split(r",\s?", one)))
            yield fault("devices_in_one", one, names=names)
        starts = any(one.launcher for one in role.launches)
        twice = [one for one in role.ids if starts and taken.setdefault(one, role) is not role]
        for one in twice[:1]:
            yield fault("device_twice", one, line=taken[one].line)


def _pods(job: Job) -> Findings:
    """Launchers that wait for another number of nodes than the job has pods."""
    if any(role.pods is None for role in job.roles):
        return
    everything = sum(role.pods or 0 for role in job.roles)
    waiting = [role for role in job.roles if any(one.waits for one in role.launches)]
    launched = sum(role.pods or 0 for role in waiting)
    counts = {str(one.get(name)) for one in parts_of(Map, job.fields) for name in COUNTS[:-1]}
    own = job.row
    for launch in (one for one in job.launches if one.launcher and one.waits):
        waits = launch.waits or 0
        if own.get("jobs") and str(waits) in counts:
            continue
        if waits not in (everything, launched) and (
            not own.get("own") or min(everything, waits) > 1
        ):
            yield fault("pods_and_nodes", launch, launched=placed(launched, 0))


def _ranks(job: Job) -> Findings:
    """Pods of a job that all take themselves for the same node."""
    given = [
        (launch, role.pods)
        for role in job.roles
        for launch in role.launches
        if launch.node is not None and not launch.command.of_some
    ]
    times = Counter((launch.node, launch.meeting) for launch, _pods_ in given)
    for launch, pods in given:
        if times[launch.node, launch.meeting] > 1 or (pods or 0) > 1:
            yield fault("rank_of_several_pods", launch)


def _unlike_pods(job: Job) -> Findings:
    """Pods of one job whose images or settings of the network differ, each beside the first."""
    pods = [role for role in job.roles if role.gpus]
    for first, other in ((pods[0], one) for one in pods[1:]):
        for name in sorted({*first.environment, *other.environment}):
            if (_OF_FABRIC.fullmatch(name) and not _OF_LOGS.search(name)) or (
                name == IMAGE and not job.row.get("parts")
            ):
                yield from _unlike(name, first, other)


def _unlike(name: str, first: Role, other: Role) -> Findings:
    """A setting that differs in two containers; none if a value is not known."""
    row = row_of("nccl_variables", name)
    of_devices = row.get("per_node") or _OF_DEVICES.search(name)
    key = "unlike_devices_of_pods" if of_devices else "unlike_setting"
    key = "unlike_image" if name == IMAGE else key
    here, there = other.environment.get(name), first.environment.get(name)
    if name in first.environment and name in other.environment:
        if here and there and here.upper() != there.upper():
            yield fault(key, here, why=f"{there} in line {there.line}")
        return
    lacking, having = (first, here) if name in other.environment else (other, there)
    is_told = having and having != str(row.get("default", "")) and lacking.is_whole
    if having and is_told and name not in lacking.text:
        yield fault(key, having, why=f"the container of line {lacking.line} does not set it")
