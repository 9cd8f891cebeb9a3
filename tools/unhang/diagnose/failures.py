"""Finds the process or host that failed first: a rank that raised, crashed or was killed is the cause, and the time-outs of others follow from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.facts import Facts
from unhang.diagnose.scanning import Event
from unhang.diagnose.weights import WEIGHTS

ENDINGS = ("crash", "host_lost", "task_lost")
REPORTS = ("root_cause", "failed_exit", "killed", "interrupted", "aborted")  # what a launcher says of a failure, or how a failed job is swept away
CRASHES = {"-4", "-5", "-7", "-8", "-11", "132", "133", "135", "136", "139"}  # SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV; by SIGABRT watchdogs end, too
OF_THE_PROGRAM = {
    "AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "ModuleNotFoundError", "NameError", "SyntaxError", "TypeError",
    "UnboundLocalError", "ZeroDivisionError",
}  # fmt: skip
HARDWARE = {"xid_hardware", "nvlink_down", "driver_gsp_bug"}
_RANK_IN_FILE = re.compile(r"rank[_-]?(?P<rank>\d{1,6})\b")


def rank_failed_first(facts: Facts) -> Iterator[Evidence]:
    """A rank raised, crashed or lost its host, and others show what follows from that."""
    first = first_failure(facts)
    if first is None:
        return
    echoes = echoes_of(facts, first)
    if echoes:
        why = f"{who_failed(facts, first)} failed first; the others waited for it"
        yield Evidence("rank_failed", WEIGHTS["decisive"], why, (first, *echoes[:2]), "failed-first")


def rank_was_killed(facts: Facts) -> Iterator[Evidence]:
    """A process was killed from outside before the others ran out of time: most often the host had no memory left."""
    killed = killed_first(facts)
    if killed is not None and first_failure(facts) is None and echoes_of(facts, killed):
        why = f"{who_failed(facts, killed)} was killed; the others waited for it"
        yield Evidence("oom", WEIGHTS["supporting"], why, (killed,), "killed-first")


def failed_by_itself(facts: Facts) -> bool:
    """Whether a process crashed, or raised what only its own program raises, when nobody had waited yet, and no line names a cause."""
    if facts.timeouts or any(names_its_cause(event) for event in facts.events):
        return False
    crashed = any(event.fields["code"] in CRASHES and not event.quoted for event in facts.of("failed_exit"))
    first = facts.first_error
    if first is not None and (first.fields.get("what") or "") in OF_THE_PROGRAM:
        return True
    return crashed or _was_signalled(facts) or _reported_alone(facts)


def _reported_alone(facts: Facts) -> bool:
    """Whether the launcher's report is all that is left: a process ended with an exit code of its own, and no other line is an error's."""
    errors = [event for event in facts.events if event.signature.kind == "error" and not event.quoted]
    return bool(facts.of("failed_exit")) and all(event.signature.fact in ("failed_exit", "failed_rank", "root_cause") for event in errors)


def _was_signalled(facts: Facts) -> bool:
    """Whether the process that failed first was ended by a signal, or the whole job by a person or a scheduler, before anybody waited."""
    failed = failed_of_root(facts)
    code = failed.exit.fields["code"] if failed else None
    return (code is not None and code.startswith("-")) or any(not event.quoted for event in facts.of("interrupted"))


def killed_first(facts: Facts) -> Event | None:
    """A process that was killed before anybody ran out of time; launchers kill what is left afterwards."""
    waits = [event for name in ("timeout", "store_timeout") for event in facts.of(name) if not event.quoted]
    killed = [event for event in facts.of("killed") if not event.quoted]
    return killed[0] if killed and not any(comes_before(wait, killed[0]) for wait in waits) else None


def first_failure(facts: Facts) -> Event | None:
    """The first process or host that failed by itself; None where an error that tells its cause stands before it, or beside it."""
    with_cause = [event for event in facts.events if names_its_cause(event)]
    places = {(event.file, event.line) for event in with_cause}
    ended = [
        event for name in ENDINGS for event in facts.of(name) if not event.quoted and (event.file, event.line) not in places and not _is_swept(facts, event)
    ]
    explained = _explained_by_hardware(facts, with_cause)
    for event in sorted(ended, key=lambda one: (one.file, one.line)):
        if (event.file, event.line) in explained:
            continue
        if not any(comes_before(other, event) for other in [*with_cause, *ended] if other is not event):
            return event
    return None


def _explained_by_hardware(facts: Facts, with_cause: Sequence[Event]) -> set[tuple[str, int]]:
    """Places where a CUDA kernel failed, in a job on whose hardware the kernel's log speaks; that log may stand anywhere."""
    if not any(HARDWARE & set(event.signature.for_) for event in with_cause):
        return set()
    return {(event.file, event.line) for event in facts.events if event.signature.id == "cuda-kernel-failed"}


def _is_swept(facts: Facts, event: Event) -> bool:
    """Whether the process ended after somebody's time had run out, and so because of it. A rank without watchdog line and stamp is none of those."""
    if _had_failed_in_silence(facts, event):
        return False
    return any(comes_before(wait, event) for name in ("timeout", "store_timeout") for wait in facts.of(name) if not wait.quoted)


def _had_failed_in_silence(facts: Facts, event: Event) -> bool:
    rank = rank_of(event)
    return rank is not None and event.prefix.time_s is None and rank not in {one.rank for one in facts.timeouts}


def names_its_cause(event: Event) -> bool:
    """Whether the line is an error that speaks for a cause by itself."""
    signature = event.signature
    spoken = signature.program.startswith("people")
    return signature.kind == "error" and not (event.quoted or event.source or spoken) and bool({"decisive", "strong"} & set(signature.for_.values()))


def echoes_of(facts: Facts, first: Event) -> list[Event]:
    """Symptoms of other ranks that do not come before the failure; a rank that has no watchdog line had failed before, wherever its lines stand."""
    rank = rank_of(first)
    silent = _had_failed_in_silence(facts, first)
    return [
        event
        for event in facts.events
        if event.signature.kind == "symptom"
        and not (event.quoted or event.source or event.signature.program.startswith("people"))
        and event.signature.fact not in REPORTS
        and (event.file, event.line) != (first.file, first.line)
        and (silent or not comes_before(event, first))
        and (rank is None or rank_of(event) != rank)
    ]


def comes_before(one: Event, other: Event) -> bool:
    """Whether `one` is known to be earlier: by its stamp, or by its line in the same file. Files without stamps do not tell."""
    left, right = one.prefix, other.prefix
    if left.time_s is not None and right.time_s is not None and left.has_year == right.has_year and left.time_s != right.time_s:
        return left.time_s < right.time_s
    return one.file == other.file and one.line < other.line


def rank_of(event: Event) -> int | None:
    """The rank that the line names, or the name of its file."""
    if event.prefix.rank is not None:
        return event.prefix.rank
    found = _RANK_IN_FILE.search(PurePath(event.file).name)
    return int(found["rank"]) if found else None


def who_failed(facts: Facts, event: Event) -> str:
    """rank 3 on gpu007, as far as the log tells."""
    rank, host = rank_of(event), event.fields.get("host") or event.prefix.host
    if rank is None and (failed := failed_of_root(facts)):
        rank = failed.rank
        host = host or next((one.fields.get("host") for one in facts.of("failed_host")), None)
    if event.signature.fact == "host_lost":
        return f"host {host or event.fields.get('address') or '(not named)'}"
    if event.signature.fact == "task_lost":
        return f"task {event.fields.get('task') or event.fields.get('named')}"
    return (f"rank {rank}" if rank is not None else "a process") + (f" on {host}" if host else "")


class Failed(NamedTuple):
    """The process that a launcher names as the first one that failed. exit: the line with its exit code."""

    rank: int
    exit: Event


def failed_of_root(facts: Facts) -> Failed | None:
    """What torchrun tells below "Root Cause"; those that it lists above were ended after it."""
    for root in facts.of("root_cause"):
        below = [event for event in facts.of("failed_rank") if event.file == root.file and event.line > root.line]
        exits = [event for event in facts.of("failed_exit") if event.file == root.file and below and event.line > below[0].line]
        if below and exits:
            return Failed(int(below[0].fields["rank"] or 0), exits[0])
    return None
