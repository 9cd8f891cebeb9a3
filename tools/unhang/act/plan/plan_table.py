"""A plan as text for people: waves with the changes of each node, refusals, and manual work. Values
in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from unhang.act.plan.description import (
    DescribedWaves,
    ManualWork,
    describe_limits,
    describe_refusals,
    describe_schedulers,
    describe_totals,
    describe_waves,
)
from unhang.act.plan.plan_document import Plan, digest_of_plan
from unhang.core.command_lines import command_lines, pasted
from unhang.core.text import visible, wrapped

LABEL = 12


def render_plan_table(
    plan: Plan,
    width: int = 80,
    *,
    next_step: str = "",
    work: Sequence[ManualWork] = (),
    whole: str = "",
) -> str:
    """The plan. width: columns; lines are wrapped. next_step: the command to run next. work: the
    manual work to show. whole: the command that shows all of it."""
    lines = wrapped(
        f"plan {digest_of_plan(plan)[:12]} of run {visible(plan.run.id)}, judged on"
        f" {visible(plan.day, 40)}",
        width,
    )
    lines += _row("limits", describe_limits(plan), width)
    lines += [*(_row("scheduler", describe_schedulers(plan), width) if plan.waves else []), ""]
    for waves in describe_waves(plan):
        lines += _waves(waves, width)
    lines += _section("refused", describe_refusals(plan), width)
    lines += _persons(work, width, whole)
    lines += wrapped(describe_totals(plan), width)
    lines += ["", *pasted("next", next_step, width)] if next_step else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _waves(waves: DescribedWaves, width: int) -> Iterator[str]:
    first, _, rest = waves.name.partition(" ")
    yield f"{first.upper()} {rest}: {waves.nodes}"
    for one in waves.groups:
        rows = [
            ("where", one.hosts),
            *(("role", line) for line in one.roles),
            *([("choice", one.choice)] if one.choice else []),
            ("because", one.because),
            *(("reboot", line) for line in one.reboots),
        ]
        for label, text in (*rows, ("jobs", one.jobs)):
            yield from _row(label, text, width)
        yield ""


def _section(title: str, folded: Mapping[str, str], width: int) -> list[str]:
    if not folded:
        return []
    lines = [title.upper()]
    for text, hosts in folded.items():
        lines += wrapped(hosts, width, start="  ") + wrapped(text, width, start="    ")
    return [*lines, ""]


def _persons(work: Sequence[ManualWork], width: int, whole: str) -> list[str]:
    if not work:
        return []
    lines = ["FOR A PERSON"]
    for one in work:
        lines += wrapped(one.hosts, width, start="  ") + wrapped(one.what, width, start="    ")
        lines += [f"    {line}" for line in command_lines(one.drain, width - 4) if one.drain]
    return [*lines, *(pasted("all of it", whole, width, "  ") if whole else ()), ""]


def _row(label: str, text: str, width: int) -> list[str]:
    return wrapped(text, width, start=f"  {label:<{LABEL}}")
