"""Who waits in the set-up of a group, by the lines of the store's barrier, and of the job's first
communicator, by NCCL's. Values in, values out.

Each rank prints `Init START`, and `Init COMPLETE` when all have come: of few that did not start the
others wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unhang.core.verdict.waiting import LAUNCHED, Group, Step, are_few
from unhang.jobs.diagnose.matching.scanning import Event, names_in

SET_UP = "ncclCommInitRank"


def set_up_waits(
    by_fact: Mapping[str, Sequence[Event]], world_size: int | None
) -> tuple[list[Group], list[Step]]:
    """The communicators of all ranks (world_size: as the log has it) that nobody completed and few
    did not start, and the steps in them; none once a line shows that the job went on. Before them
    the barriers of the store that gave up."""
    groups, steps = [], []
    for event in by_fact.get("store_timeout", ()):
        if key := event.fields.get("key"):
            groups.append(Group(key, tuple(range(event.number("nranks")))))
            steps.append(
                Step(event.number("rank"), key, "barrier of the store", 0, LAUNCHED,
                     source=event.file, line=event.line)
            )  # fmt: skip
    if any(by_fact.get(name) for name in names_in("entered")):
        return groups, steps
    sizes = {event.fields.get("nranks") for event in by_fact.get("init_complete", ())}
    started: dict[str, dict[int, Event]] = {}
    for event in by_fact.get("init_start", ()):
        part = event.fields
        is_all = part["nranks"] == str(world_size) and part["nranks"] not in sizes
        if is_all and part.get("comm") and not event.quoted:
            started.setdefault(str(part["comm"]), {})[int(part["rank"] or 0)] = event
    for comm, events in started.items():
        if not are_few({*range(world_size or 0)} - events.keys(), events):
            continue
        groups.append(Group(f"communicator {comm}", tuple(range(world_size or 0)), world_size))
        steps += [
            Step(rank, groups[-1].name, SET_UP, 0, LAUNCHED, source=event.file, line=event.line)
            for rank, event in sorted(events.items())
        ]
    return groups, steps
