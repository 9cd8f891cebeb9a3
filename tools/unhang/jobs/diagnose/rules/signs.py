"""Signs that several rules use: whether a log shows a hang, and whether a line is near the end of its file."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event


def hang_signs(facts: Facts) -> list[Event]:
    """The lines that report a hang or a timeout, in any wording."""
    names = ["timeout", "store_timeout", "hang_told", "vllm_stall", "jax_stuck", "horovod_stall", "desync", "stack_dump"]
    if not facts.of("training_step"):  # somebody who stops a running job does not report a hang
        names.append("interrupted")
    signs = [event for name in names for event in facts.of(name) if not event.quoted]
    return signs + _busy_and_cool(facts)


def _busy_and_cool(facts: Facts) -> list[Event]:
    """GPUs at full load with little power: they wait in a kernel for each other."""
    rows = [
        event
        for event in facts.of("gpu_load")
        if int(event.fields["load"] or 0) >= 95 and int(event.fields["watt"] or 0) * 10 < int(event.fields["cap"] or 1) * 4
    ]
    return rows if len(rows) > 1 else []


def near_end(facts: Facts, event: Event) -> bool:
    """Whether the line is among the last of its file."""
    lines: Sequence[tuple[int, str]] = facts.last.get(event.file, ())
    return bool(lines) and event.line >= lines[0][0]
