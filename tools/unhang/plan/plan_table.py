"""A plan as text for people: waves with what happens to whom, what is refused, and what somebody has to look at; equal nodes folded. Text in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from unhang.nodeset import fold_hosts, shortened
from unhang.plan.plan_document import HostPlan, Plan, Wave
from unhang.text import counted, visible

LABEL = 12
LONGEST_LIST = 400


def render_plan_table(plan: Plan, width: int = 80, *, next_step: str = "") -> str:
    """The whole plan. width: columns; lines are wrapped, nothing is cut but long lists of hosts. next_step: the command that comes after it."""
    lines = [f"plan of run {visible(plan.run.id)}, judged on {plan.day}", *_row("limits", _limits(plan), width), ""]
    for waves in _equal_waves(plan):
        lines += _waves(plan, waves, width)
    lines += _section("refused", _folded((entry.host, visible(one.why)) for entry in plan.hosts for one in entry.refused), width)
    persons = ((entry.host, f"{visible(one.what)} ({one.rule})") for entry in plan.hosts for one in entry.person)
    lines += _section("for a person", _folded(persons), width)
    lines += _totals(plan, width) + (["", f"next: {next_step}"] if next_step else [])
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _limits(plan: Plan) -> str:
    limits = plan.limits
    parts = [f"{limits.max_unavailable:,} of the {counted(limits.in_service, 'node')} that answered out of service at once"]
    parts += [f"{limits.floor:,} at least stay in service"] if limits.floor else []
    by_limit: dict[int, list[str]] = {}
    for one in limits.groups:
        by_limit.setdefault(one.max_unavailable, []).append(one.group)
    parts += [f"{limit} of each of {shortened(fold_hosts(groups), LONGEST_LIST)}" for limit, groups in sorted(by_limit.items())]
    parts += [f"rules {', '.join(limits.only)} alone"] if limits.only else []
    parts += [f"without {shortened(fold_hosts(limits.except_), LONGEST_LIST)}"] if limits.except_ else []
    return "; ".join(parts)


def _equal_waves(plan: Plan) -> list[list[Wave]]:
    """Waves that follow each other and do the same to equally many nodes, told together."""
    alike = [(len(wave.hosts), wave.is_canary, sorted({_what_happens(plan.by_host[host]) for host in wave.hosts})) for wave in plan.waves]
    grouped: list[list[Wave]] = []
    for number, wave in enumerate(plan.waves):
        if number and alike[number] == alike[number - 1]:
            grouped[-1].append(wave)
        else:
            grouped.append([wave])
    return grouped


def _what_happens(entry: HostPlan) -> tuple[str, ...]:
    return (*_roles(entry), *_reboots(entry), _minutes(entry.minutes))


def _waves(plan: Plan, waves: Sequence[Wave], width: int) -> Iterator[str]:
    """The waves' hosts, those to which the same happens together."""
    alike: dict[tuple[str, ...], list[HostPlan]] = {}
    for entry in (plan.by_host[host] for wave in waves for host in wave.hosts):
        alike.setdefault(_what_happens(entry), []).append(entry)
    names = waves[0].name.upper() + (f" to {waves[-1].name.split()[-1]}" if len(waves) > 1 else "")
    yield f"{names}: {counted(len(waves[0].hosts), 'node')}{' each' if len(waves) > 1 else ''}"
    for entries in alike.values():
        example = entries[0]
        yield from _row("where", shortened(fold_hosts(one.host for one in entries), LONGEST_LIST), width)
        for line in _roles(example):
            yield from _row("role", line, width)
        yield from _row("because", ", ".join(sorted({rule for one in entries for remedy in one.remedies for rule in remedy.because})), width)
        for line in _reboots(example):
            yield from _row("reboot", line, width)
        yield from _row("jobs", _jobs(entries), width)
        yield from _row("minutes", _minutes(example.minutes), width)
        yield ""


def _roles(entry: HostPlan) -> list[str]:
    lines = []
    for one in entry.remedies:
        change = f": {visible(one.before or 'not read', 80)} -> {visible(one.after, 80)}" if one.after and one.after != one.before else ""
        lines.append(one.role + change)
    return lines


def _reboots(entry: HostPlan) -> list[str]:
    return [("if it is rolled back: " if one.step == "rollback" else "") + visible(one.why) for one in entry.reboots]


def _minutes(minutes: float | None) -> str:
    return "unknown, for not every step was measured" if minutes is None else f"{minutes:g} a node"


def _jobs(entries: Sequence[HostPlan]) -> str:
    unread = [one.host for one in entries if one.jobs is None]
    busy = [one for one in entries if one.jobs]
    found = [job for one in busy for job in one.jobs or ()]
    users = ", ".join(sorted({visible(job.user or "?", 40) for job in found}))
    parts = [f"{counted(len(found), 'process', 'processes')} of {users} on {fold_hosts(one.host for one in busy)}"] if busy else []
    parts += [f"not read on {fold_hosts(unread)}"] if unread else []
    return shortened("; ".join(parts), LONGEST_LIST) or "none when the nodes were read"


def _folded(rows: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Text -> hosts, those of most hosts first."""
    found: dict[str, list[str]] = {}
    for host, text in rows:
        found.setdefault(text, []).append(host)
    return dict(sorted(found.items(), key=lambda one: (-len(one[1]), one[0])))


def _section(title: str, folded: dict[str, list[str]], width: int) -> list[str]:
    if not folded:
        return []
    lines = [title.upper()]
    for text, hosts in folded.items():
        lines += _wrapped(shortened(fold_hosts(hosts), LONGEST_LIST), "  ", width) + _wrapped(text, "    ", width)
    return [*lines, ""]


def _totals(plan: Plan, width: int) -> list[str]:
    planned = [one for one in plan.hosts if one.remedies]
    forward = sum(one.step != "rollback" for entry in planned for one in entry.reboots)
    back = sum(one.step == "rollback" for entry in planned for one in entry.reboots)
    waves = f"{counted(len(plan.waves), 'wave')} over {counted(len(planned), 'node')}" if planned else "no role has anything to repair"
    refused, person = (sum(bool(rows) for rows in found) for found in ((one.refused for one in plan.hosts), (one.person for one in plan.hosts)))
    text = f"{waves}; {counted(forward, 'reboot')} at most, and {back:,} more if every node is rolled back; "
    return _wrapped(text + f"something is refused on {counted(refused, 'node')}; a person has to look at {counted(person, 'node')}", "", width)


def _row(label: str, text: str, width: int) -> list[str]:
    return _wrapped(text, f"  {label:<{LABEL}}", width)


def _wrapped(text: str, start: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False) or [start]
