"""Rules over the stacks that py-spy, gdb or a traceback show of a job that hangs."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.facts import Facts
from unhang.diagnose.scanning import Event
from unhang.diagnose.signs import hang_signs
from unhang.diagnose.weights import WEIGHTS


def stacks_stand_in_different_collectives(facts: Facts) -> Iterator[Evidence]:
    """Stacks of a hung job that end in different collectives: the ranks wait for each other. A call over objects shows its inner one too, which is alike."""
    by_kind: dict[str, Event] = {}
    for event in facts.of("collective_frame"):
        name = (event.fields.get("op") or event.fields.get("call") or "").removeprefix("_")
        name = name.removesuffix("_list").removesuffix("_object")
        by_kind.setdefault("_".join(name.split("_")[:2]).removesuffix("_base"), event)
    signs = hang_signs(facts)
    if len(by_kind) > 1 and signs:
        why = f"stacks stand in different collectives: {', '.join(sorted(by_kind))}"
        yield Evidence("rank_desync_app", WEIGHTS["supporting"] + 0.4, why, (*list(by_kind.values())[:3], signs[0]), "stacks-differ")
