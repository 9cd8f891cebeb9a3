"""A plan as text for people: waves with what happens to whom, what is refused, and what somebody has to look at. Text in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from unhang.plan.description import (
    DescribedWaves,
    describe_limits,
    describe_person_rules,
    describe_persons,
    describe_refusals,
    describe_steps,
    describe_totals,
    describe_waves,
)
from unhang.plan.plan_document import Plan
from unhang.text import visible

LABEL = 12


def render_plan_table(plan: Plan, width: int = 80, *, next_step: str = "", whole: str = "") -> str:
    """The plan. width: columns; lines are wrapped. next_step: the command that comes after it.

    whole: the command that shows what a person has to look at; its rules alone are named here. "" shows it.
    """
    lines = [f"plan of run {visible(plan.run.id)}, judged on {plan.day}", *_row("limits", describe_limits(plan), width), ""]
    for waves in describe_waves(plan):
        lines += _waves(waves, width)
    lines += _section("refused", describe_refusals(plan), width)
    lines += _persons(describe_person_rules(plan), width, whole) if whole else _section("for a person", describe_persons(plan), width)
    lines += _wrapped(describe_totals(plan), "", width)
    lines += _wrapped(f"minutes of steps: {steps}", "", width) if (steps := describe_steps(plan)) else []
    lines += ["", f"next: {next_step}"] if next_step else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _waves(waves: DescribedWaves, width: int) -> Iterator[str]:
    first, _, rest = waves.name.partition(" ")
    yield f"{first.upper()} {rest}: {waves.nodes}"
    for one in waves.groups:
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


def _persons(folded: Mapping[str, str], width: int, whole: str) -> list[str]:
    """Nodes and the rules that are left to a person; what to do about each is on the first screen, and in the wide form."""
    if not folded:
        return []
    rows = [line for rules, hosts in folded.items() for line in textwrap.wrap(f"  {hosts}: {rules}", width, subsequent_indent="    ", break_on_hyphens=False)]
    return ["FOR A PERSON", *rows, f"  what to look at: {whole}", ""]


def _row(label: str, text: str, width: int) -> list[str]:
    return _wrapped(text, f"  {label:<{LABEL}}", width)


def _wrapped(text: str, start: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False) or [start]
