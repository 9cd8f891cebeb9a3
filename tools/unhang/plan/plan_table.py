"""A plan as text for people: waves with what happens to whom, what is refused, and what somebody has to look at. Text in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from unhang.plan.plan_document import Plan
from unhang.plan.telling import ToldWaves, told_limits, told_persons, told_refusals, told_totals, told_waves
from unhang.text import visible

LABEL = 12


def render_plan_table(plan: Plan, width: int = 80, *, next_step: str = "") -> str:
    """The whole plan. width: columns; lines are wrapped, nothing is cut but long lists of hosts. next_step: the command that comes after it."""
    lines = [f"plan of run {visible(plan.run.id)}, judged on {plan.day}", *_row("limits", told_limits(plan), width), ""]
    for told in told_waves(plan):
        lines += _waves(told, width)
    lines += _section("refused", told_refusals(plan), width) + _section("for a person", told_persons(plan), width)
    lines += _wrapped(told_totals(plan), "", width) + (["", f"next: {next_step}"] if next_step else [])
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _waves(told: ToldWaves, width: int) -> Iterator[str]:
    first, _, rest = told.name.partition(" ")
    yield f"{first.upper()} {rest}: {told.nodes}"
    for one in told.groups:
        rows = [("where", one.hosts), *(("role", line) for line in one.roles), ("because", one.because), *(("reboot", line) for line in one.reboots)]
        for label, text in (*rows, ("jobs", one.jobs), ("minutes", one.minutes)):
            yield from _row(label, text, width)
        yield ""


def _section(title: str, folded: Mapping[str, str], width: int) -> list[str]:
    if not folded:
        return []
    lines = [title.upper()]
    for text, hosts in folded.items():
        lines += _wrapped(hosts, "  ", width) + _wrapped(text, "    ", width)
    return [*lines, ""]


def _row(label: str, text: str, width: int) -> list[str]:
    return _wrapped(text, f"  {label:<{LABEL}}", width)


def _wrapped(text: str, start: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False) or [start]
