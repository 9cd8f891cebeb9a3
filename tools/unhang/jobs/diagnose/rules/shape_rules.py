"""Rules over lines in which each process of a job reports its share of the job, its settings, its progress, or an exit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.failures import first_failure, names_its_cause
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]
FEWEST_ALIKE = 2  # minimum number of ranks with the same value if one rank has another
# Variables that must be equal at both ends of a connection, because both choose the transport by them.
SET_ALIKE = (
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
)  # fmt: skip
_NUMBERS = re.compile(r"\d{1,12}(?:\.\d{1,9})?")


def tasks_run_alone(facts: Facts) -> Iterator[Evidence]:
    """Several tasks that were started together are each a job of one rank: the launcher did not pass the world size to the program."""
    alone = {event.prefix.rank: event for event in facts.of("world_of_one") if event.prefix.rank is not None and not event.quoted}
    tasks = max((int(event.fields["tasks"] or 0) for event in facts.of("tasks_of_step")), default=0)
    if len(alone) > 1 and tasks >= len(alone) and (facts.world_size or 1) <= 1:
        why = f"{len(alone)} of {tasks} tasks are each a job of one rank: none of them knows of the others"
        yield Evidence("launch_mismatch", STRONG, why, tuple(alone.values())[:3], "tasks-run-alone")


def settings_of_processes_differ(facts: Facts) -> Iterator[Evidence]:
    """A variable that both ends of a connection must share is set in some processes of a job and not in others, and the job fails or hangs."""
    started = {_process(event) for event in facts.of("init_start")} - {None}
    if len(started) < FEWEST_ALIKE or not (hang_signs(facts) or _failed(facts)):
        return
    for name in SET_ALIKE:
        settings = {_process(event): event for event in facts.of("setting") if event.fields["name"] == name and "NCCL INFO" in event.text}
        inside = {process: event for process, event in settings.items() if process in started}
        if 0 < len(inside) < len(started):
            why = f"{name} is set in {len(inside)} of {len(started)} processes, and the others choose their way without it"
            yield Evidence("env_var_misconfig", STRONG + 1, why, tuple(inside.values())[:2], "settings-of-processes-differ")
            return


def ranks_of_a_host_over_the_network(facts: Facts) -> Iterator[Evidence]:
    """Peer-to-peer and shared memory are both switched off, and ranks of one host communicate over its network: slow, but no failure."""
    off = {event.fields["name"]: event for event in facts.of("setting") if (event.fields["value"] or "").strip("\"'. ") == "1" and not event.quoted}
    through = [event for event in facts.of("transport") if "via NET/" in event.text]
    if {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"} <= off.keys() and through and len(facts.hosts) <= 1 and not hang_signs(facts):
        why = "peer-to-peer and shared memory are both switched off: ranks of one host talk through its network"
        yield Evidence("env_var_misconfig", HINTING, why, (off["NCCL_P2P_DISABLE"], off["NCCL_SHM_DISABLE"], through[0]), "host-over-network")


def one_rank_says_something_else(facts: Facts) -> Iterator[Evidence]:
    """All ranks print a line with the same value, except one with another value, and the ranks do not meet."""
    waits = [event for name in ("timeout", "store_timeout") for event in facts.of(name) if not event.quoted]
    if not (waits or hang_signs(facts) or facts.has("waits-for-communicator-id")):
        return
    by_shape: dict[str, dict[int, Event]] = {}
    for event in facts.of("rank_said"):
        by_shape.setdefault(_shape(event), {}).setdefault(_speaker(event), event)
    for spoken in by_shape.values():
        values = Counter(event.fields["phrase"] for event in spoken.values())
        if len(values) == 2 and len(spoken) > FEWEST_ALIKE and min(values.values()) == 1:
            odd = next(event for event in spoken.values() if values[event.fields["phrase"]] == 1)
            other = next(event for event in spoken.values() if values[event.fields["phrase"]] > 1)
            why = f"rank {_speaker(odd)} alone says: {(odd.fields['phrase'] or '')[:60]}; the others say: {(other.fields['phrase'] or '')[:60]}"
            yield Evidence("rank_desync_app", STRONG - 0.5, why, (odd, other), "one-rank-says-otherwise")
            return


def late_rank_goes_on(facts: Facts) -> Iterator[Evidence]:
    """A rank without a watchdog line continues its work after the timeout of the others: it was late and had not exited."""
    ended = [event for name in ("timeout", "store_timeout") for event in facts.of(name) if not event.quoted]
    waiting = {one.rank for one in facts.timeouts} | {event.prefix.rank for event in ended}
    for wait in ended[:1]:
        spoken = [*facts.of("rank_said"), *facts.of("rank_at_work")]
        after = [event for event in spoken if event.file == wait.file and event.line > wait.line and _speaker(event) not in _gave_up_by(facts, event)]
        before = {(_speaker(event), _shape(event)) for event in spoken if event.file == wait.file and event.line < wait.line}
        late = [
            event
            for event in after
            if event.signature.fact == "rank_at_work" or (_speaker(event) not in waiting and (_speaker(event), _shape(event)) in before)
        ]
        if late:
            why = f"rank {_speaker(late[0])} goes on with its work after the others had given up"
            yield Evidence("slow_rank_or_io", STRONG + 1, why, (late[0], wait), "late-rank-goes-on")
            yield Evidence("watchdog_timeout_too_short", STRONG - 0.4, why, (late[0], wait), "late-rank-goes-on")
            yield Evidence("rank_desync_app", -SUPPORTING, why, (late[0],), "late-rank-goes-on")


def other_end_went_away(facts: Facts) -> Iterator[Evidence]:
    """A job that had made steps ends because a remote process exited without output here: that process failed first, or was ended."""
    gone = [event for event in facts.events if event.signature.id == "nccl-peer-closed" and not event.quoted]
    steps = facts.of("training_step")
    if gone and steps and steps[0].line < gone[0].line and not facts.timeouts and first_failure(facts) is None and not _named(facts):
        why = "the job had made steps when a process at the other end went away, whose own words are not here"
        yield Evidence("rank_failed", SUPPORTING + HINTING, why, (gone[0],), "other-end-went-away")


def _named(facts: Facts) -> bool:
    return any(names_its_cause(event) for event in facts.events)


def _failed(facts: Facts) -> bool:
    return any(event.signature.kind == "error" and not event.quoted for event in facts.events) or bool(facts.of("failed_exit"))


def _process(event: Event) -> str | None:
    return f"{event.prefix.host}:{event.prefix.pid}" if event.prefix.pid else None


def _speaker(event: Event) -> int:
    return int(event.fields.get("rank") or event.fields.get("number") or -1)


def _shape(event: Event) -> str:
    """The line without its numbers."""
    return _NUMBERS.sub("#", event.fields.get("phrase") or "")


def _gave_up_by(facts: Facts, event: Event) -> set[int | None]:
    """The ranks whose own watchdog had spoken before this line."""
    return {one.rank for one in facts.timeouts if one.event.file == event.file and one.event.line < event.line}
