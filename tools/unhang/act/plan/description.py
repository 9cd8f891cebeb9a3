"""A plan described for people, for every output: equal waves and equal nodes are folded. Values in,
values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from unhang.act.plan.plan_document import HostPlan, Plan, Wave, digest_of_plan
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.actions import Setting, command, leaves_service
from unhang.core.run.findings import DISPUTED
from unhang.core.text import counted, listed, visible, wrapped

LONGEST_LIST = 400
SHOWN_WAVES = SHOWN_UNREPAIRED = SHOWN_JOBS = 6


@dataclass(frozen=True)
class Alike:
    """Nodes of a wave with the same changes. Every text is one line that is safe to show."""

    hosts: str
    roles: tuple[str, ...]
    because: str
    reboots: tuple[str, ...]
    jobs: str
    choice: str  # how to take another version than the rules propose; "" where one version is named


@dataclass(frozen=True)
class DescribedWaves:
    """One wave, or several consecutive waves with the same changes: `canary 1`, `wave 2 to 9`."""

    name: str
    nodes: str
    groups: tuple[Alike, ...]


def describe_waves(plan: Plan) -> list[DescribedWaves]:
    return [_described(plan, waves) for waves in _equal_waves(plan)]


def describe_refusals(plan: Plan) -> dict[str, str]:
    """Reason -> hosts, the reasons with most hosts first."""
    return _folded((entry.host, visible(one.why)) for entry in plan.hosts for one in entry.refused)


def describe_persons(plan: Plan) -> dict[str, str]:
    """Manual work with its rule -> hosts, the work on most hosts first."""
    return _folded(
        (entry.host, f"{visible(one.what)} ({visible(one.rule, 120)})")
        for entry in plan.hosts
        for one in entry.person
    )


@dataclass(frozen=True)
class ManualWork:
    """What a person has to do on some nodes, and the command that keeps jobs off them until then;
    "" where jobs may run on."""

    hosts: str
    what: str
    drain: str


def describe_manual_work(
    plan: Plan, causes: Sequence[Mapping[str, Any]], setting: Setting
) -> list[ManualWork]:
    """Manual work in the order of the causes of findings-1, once for each, without what another
    finding of the same node explains. setting: surroundings for the commands."""
    order, explained = dict[tuple[str, str], int](), set[tuple[str, str]]()
    for place, cause in enumerate(causes):
        for host in cause["nodes"]:
            order.setdefault((cause["rule"], host), place)
            explained.update((rule, host) for rule in cause["explains"])
    work: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for entry in plan.hosts:
        by_rule: dict[str, list[str]] = {}
        for one in entry.person:
            if (one.rule, entry.host) in order or (one.rule, entry.host) not in explained:
                by_rule.setdefault(one.rule, []).append(one.what.partition(DISPUTED)[0])
        for rule, texts in by_rule.items():
            place = order.get((rule, entry.host), len(causes))
            work.setdefault((place, (rule, *texts)), []).append(entry.host)
    drained: set[str] = set()
    described = []
    for (place, (rule, text, *alike)), hosts in sorted(work.items()):
        drain = _drain(causes[place], hosts, setting) if place < len(causes) else ""
        more = f", and {len(alike)} more alike" if alike else ""
        described.append(
            ManualWork(
                shortened(fold_hosts(hosts), LONGEST_LIST),
                f"{visible(text)} ({visible(rule, 120)}{more})",
                "" if drained.issuperset(hosts) else drain,
            )
        )
        drained.update(hosts if drain else ())
    return described


def _drain(cause: Mapping[str, Any], hosts: Sequence[str], setting: Setting) -> str:
    if leaves_service(cause):
        return visible(command({**cause, "nodes": hosts}, setting), 4_000_000)
    return (
        "keep jobs off until then; no scheduler was seen on it"
        if cause["severity"] == "critical" and not cause["unread"]
        else ""
    )


def describe_unrepaired(plan: Plan) -> list[str]:
    """Findings that no role repairs, a line each with its hosts, refusals first; beyond
    SHOWN_UNREPAIRED only their number."""
    found = [*describe_refusals(plan).items(), *describe_persons(plan).items()]
    lines = [f"{shortened(hosts, 120)}: {what}" for what, hosts in found[:SHOWN_UNREPAIRED]]
    return [
        *lines,
        *([f"and {len(found) - SHOWN_UNREPAIRED} more"] if len(found) > SHOWN_UNREPAIRED else []),
    ]


def describe_totals(plan: Plan) -> str:
    planned = [one for one in plan.hosts if one.remedies]
    forward = sum(one.step != "rollback" for entry in planned for one in entry.reboots)
    back = sum(one.step == "rollback" for entry in planned for one in entry.reboots)
    waves = (
        f"{counted(len(plan.waves), 'wave')} over {counted(len(planned), 'node')}"
        if planned
        else "no role has anything to repair"
    )
    refused, person = (
        sum(bool(rows) for rows in found)
        for found in ((one.refused for one in plan.hosts), (one.person for one in plan.hosts))
    )
    reboots = (
        f"{counted(forward, 'reboot')} at most, and {back:,} more if every node is rolled back"
        if forward or back
        else "no reboot"
    )
    parts = [waves, reboots]
    parts += [f"something is refused on {counted(refused, 'node')}"] if refused else []
    parts += [f"a person has to look at {counted(person, 'node')}"] if person else []
    return "; ".join(parts)


def describe_limits(plan: Plan) -> str:
    limits = plan.limits
    most = (
        f"{limits.max_unavailable:,} of the {counted(limits.in_service, 'node')} that answered out"
        " of service at once"
    )
    parts = [most if limits.in_service else "no node answered"]
    parts += [f"{limits.floor:,} at least stay in service"] if limits.floor else []
    by_limit: dict[int, list[str]] = {}
    for one in limits.groups:
        by_limit.setdefault(one.max_unavailable, []).append(one.group)
    parts += [
        f"{limit} of each of {shortened(fold_hosts(groups), LONGEST_LIST)}"
        for limit, groups in sorted(by_limit.items())
    ]
    parts += [f"rules {', '.join(limits.only)} alone"] if limits.only else []
    parts += [f"{shortened(fold_hosts(limits.hosts), LONGEST_LIST)} alone"] if limits.hosts else []
    parts += (
        [f"without {shortened(fold_hosts(limits.except_), LONGEST_LIST)}"] if limits.except_ else []
    )
    return "; ".join(parts)


def _equal_waves(plan: Plan) -> list[list[Wave]]:
    """Groups of consecutive waves with the same changes and the same number of nodes."""

    def change(wave: Wave) -> tuple[object, ...]:
        happens = {_what_happens(plan.by_host[host]) for host in wave.hosts}
        return len(wave.hosts), wave.is_canary, happens

    return [list(waves) for _, waves in groupby(plan.waves, change)]


def _what_happens(entry: HostPlan) -> tuple[str, ...]:
    return (*_roles(entry), *_reboots(entry))


def _described(plan: Plan, waves: Sequence[Wave]) -> DescribedWaves:
    """The waves' hosts, grouped by equal changes."""
    alike: dict[tuple[str, ...], list[HostPlan]] = {}
    for entry in (plan.by_host[host] for wave in waves for host in wave.hosts):
        alike.setdefault(_what_happens(entry), []).append(entry)
    several = len(waves) > 1
    return DescribedWaves(
        waves[0].name + (f" to {waves[-1].name.split()[-1]}" if several else ""),
        counted(len(waves[0].hosts), "node") + (" each" if several else ""),
        tuple(_alike(entries) for entries in alike.values()),
    )


def _alike(entries: Sequence[HostPlan]) -> Alike:
    example = entries[0]
    return Alike(
        shortened(fold_hosts(one.host for one in entries), LONGEST_LIST),
        tuple(_roles(example)),
        ", ".join(
            sorted({rule for one in entries for remedy in one.remedies for rule in remedy.because})
        ),
        tuple(_reboots(example)),
        _jobs(entries),
        _choice(example),
    )


def _choice(entry: HostPlan) -> str:
    """What to do to get a certain version where a remedy allows several."""
    policy_keys = {"gpu_driver": "driver", "kernel": "kernel", "nccl_profile": "nccl"}
    open_ended = [
        one
        for one in entry.remedies
        if one.role in policy_keys and one.after and one.after.endswith((" or newer", " or older"))
    ]
    if not open_ended:
        return ""
    first = open_ended[0]
    pin = f"{policy_keys[first.role]}.version"
    known = f"unhang explain {first.because[0]} says which worked"
    return (
        f"{visible(first.after, 80)}, or a version that you pin: set {pin} in unhang_policy and"
        f" audit again; {known}"
    )


def _roles(entry: HostPlan) -> list[str]:
    lines = []
    for one in entry.remedies:
        change = (
            f": {visible(one.before or 'not read', 80)} -> {visible(one.after, 80)}"
            if one.after and one.after != one.before
            else ""
        )
        lines.append(one.role + change)
    return lines


def _reboots(entry: HostPlan) -> list[str]:
    return [
        ("if it is rolled back: " if one.step == "rollback" else "") + visible(one.why)
        for one in entry.reboots
    ]


def describe_schedulers(plan: Plan) -> str:
    """The scheduler that each node of the waves is drained in, in one line."""
    names: dict[str, list[str]] = {}
    for entry in (plan.by_host[host] for host in plan.wave_of):
        names.setdefault(entry.scheduler or "not known: name it with --drain", []).append(
            entry.host
        )
    return "; ".join(
        f"{name} ({shortened(fold_hosts(hosts), LONGEST_LIST)})" if len(names) > 1 else name
        for name, hosts in sorted(names.items())
    )


def describe_order(plan: Plan, drain: str | None, now: Plan, width: int) -> str:
    """In which order, limits and scheduler the nodes of the plan are taken, and how long jobs are
    waited for. now: the plan with the jobs of now; width: columns."""
    waves = [f"{wave.name} {shortened(fold_hosts(wave.hosts), 60)}" for wave in plan.waves]
    jobs = [now.by_host[host].jobs for host in plan.wave_of]
    unknown = f", not known on {counted(jobs.count(None), 'node')}" if None in jobs else ""
    waited = (
        f"on {counted(sum(map(bool, jobs)), 'node')}{unknown}; waited for until"
        " their time limits, a day for a job without one"
    )
    lines = [f"plan {digest_of_plan(plan)[:12]}"]
    for name, text in (
        ("limits", describe_limits(plan)),
        ("waves", listed(waves, SHOWN_WAVES)),
        ("drained by", drain if drain not in (None, "auto") else describe_schedulers(plan)),
        ("jobs", waited),
    ):
        lines += wrapped(text, width, start=f"  {name:<13}")
    return "\n".join(lines) + "\n"


def _jobs(entries: Sequence[HostPlan]) -> str:
    unknown = [one.host for one in entries if one.jobs is None]
    busy = [one for one in entries if one.jobs]
    parts = (
        [f"{describe_jobs(busy)} on {fold_hosts(one.host for one in busy)}"] if busy else []
    ) + ([f"not known on {fold_hosts(unknown)}"] if unknown else [])
    by = sorted({one.scheduler for one in entries if one.scheduler not in (None, "none")})
    and_asked = f" and {' and '.join(map(str, by))} was asked" if by else ""
    return shortened("; ".join(parts), LONGEST_LIST) or f"none when the nodes were read{and_asked}"


def describe_jobs(entries: Iterable[HostPlan]) -> str:
    """What runs on these hosts: jobs of a scheduler by their ids, processes on GPUs by users; ""
    for nothing."""
    found = [job for entry in entries for job in entry.jobs or ()]
    ids = list(dict.fromkeys(visible(job.id, 80) for job in found if job.id))
    processes = [job for job in found if not job.id]
    parts = [f"{'job' if len(ids) == 1 else 'jobs'} {listed(ids, SHOWN_JOBS)}"] if ids else []
    if processes:
        users = ", ".join(sorted({visible(job.user or "?", 40) for job in processes}))
        parts += [f"{counted(len(processes), 'process', 'processes')} of {users}"]
    return ", ".join(parts)


def _folded(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Text -> its hosts as a node set, the texts with most hosts first."""
    found: dict[str, list[str]] = {}
    for host, text in rows:
        found.setdefault(text, []).append(host)
    return {
        text: shortened(fold_hosts(hosts), LONGEST_LIST)
        for text, hosts in sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    }
