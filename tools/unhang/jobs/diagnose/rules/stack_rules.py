"""Rules over stacks of a hanging job, as py-spy, gdb or a traceback shows them."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import WEIGHTS


def stacks_stand_in_different_collectives(facts: Facts) -> Iterator[Evidence]:
    """Stacks of a hung job end in different collectives: the ranks wait for each other. A collective over objects also shows its inner collective, which does
    not count."""
    by_kind: dict[str, Event] = {}
    for event in facts.of("collective_frame"):
        name = (event.fields.get("op") or event.fields.get("call") or "").removeprefix("_")
        name = name.removesuffix("_list").removesuffix("_object")
        by_kind.setdefault("_".join(name.split("_")[:2]).removesuffix("_base"), event)
    signs = hang_signs(facts)
    if len(by_kind) > 1 and signs:
        why = f"stack traces show different collectives: {', '.join(sorted(by_kind))}"
        yield Evidence("rank_desync_app", WEIGHTS["supporting"] + 0.4, why, (*list(by_kind.values())[:3], signs[0]), "stacks-differ")


def one_stack_waits_for_its_data(facts: Facts) -> Iterator[Evidence]:
    """One process waits in its data loader while another waits in a collective: the second waits for the first, which waits for its batch."""
    dumps, loads, waits = facts.of("stack_dump"), facts.of("loader_frame"), facts.of("collective_frame")
    if dumps and loads and waits and (loads[0].file != waits[0].file or len(dumps) > 1):
        process = _process_of(facts, loads[0])
        who = f"process {process.fields['pid']}" if process else "one process"
        why = f"{who} waits for its data loader while another waits in a collective"
        events = (*([process] if process else []), loads[0], waits[0])
        yield Evidence("slow_rank_or_io", WEIGHTS["supporting"] + 0.6, why, events, "stack-in-loader")


def _process_of(facts: Facts, frame: Event) -> Event | None:
    """The line of py-spy above a frame that names the process and its command."""
    above = [event for event in facts.of("stack_process") if event.file == frame.file and event.line < frame.line]
    return above[-1] if above else None
