"""Finds the process or host that failed first: a rank that raised, crashed or was killed is the
cause, and the timeouts of others follow from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from unhang.core.text import listed
from unhang.core.verdict.odd_one_out import AT_LEAST
from unhang.core.verdict.waiting import are_few
from unhang.jobs.diagnose.log_facts import Facts, evidence_of, most_telling
from unhang.jobs.diagnose.logs.last_words import RankLine
from unhang.jobs.diagnose.matching.scanning import Event, names_in, rank_in_name, rank_of
from unhang.jobs.diagnose.meaning.evidence import DECISIVE, STRONG, SUPPORTING, Evidence
from unhang.jobs.diagnose.meaning.signs import hang_signs, last_steps, own_errors

TIME_LIMIT, CANCELLED = "slurm-time-limit", "slurm-cancelled"
WAITED = "Timed out waiting"
FEW_LINES = 2  # a log of nothing but the scheduler's own lines
BESIDE_LINES = 20  # after a rank's failure, others print their steps for a while
HARDLY = 0.5  # below any other evidence
RAISED = ("what(): ", "Error: [")  # how C++ and Python print what was thrown
CAUGHT_WITHIN, CHAIN_WITHIN = 4, 200  # lines; tracebacks of several ranks may be interleaved
NOT_NAMED = 0.1  # below decisive: such a failure is at most a warning


def rank_failed_first(facts: Facts) -> Iterator[Evidence]:
    """A rank raised, crashed or lost its host, and other ranks show the consequences.

    Decides diagnose_real/pipeline-send-send, diagnose_user_jobs/upload-tries-used-up,
    diagnose_batches/13/e26.
    """
    if (first := first_failure(facts)) and (echoes := echoes_of(facts, first)):
        who = who_failed(facts, first)
        alike = (  # of other ranks
            one
            for one in facts.said(*names_in("endings"))
            if _masked(one.text) == _masked(first.text)
            and one.place != first.place
            and not _is_swept(facts, one)
        )
        yield Evidence(
            "rank_failed",
            DECISIVE - (0.0 if _is_own_fault(first) else NOT_NAMED),
            f"{who} failed first; the others waited for it",
            (first, *alike, *echoes[:2]),
            "failed-first",
            who=(f"file {PurePath(first.file).name}",)
            if who == "a process" and facts.last.keys() - {first.file}
            else (),
        )


def rank_ended_without_a_word(facts: Facts) -> Iterator[Evidence]:
    """Of ranks, or of files that are named alike, most end with the words of a connection that
    broke, and few without them: these went first. They may have been killed, or have left with exit
    code 0.

    Decides diagnose_odd_ones/many_ranks/one-of-eight-ends-without-a-word.
    """
    steps, ended = last_steps(facts), {*map(_whose, facts.of("end_told"))}
    told = {
        _whose(one): one
        for one in facts.plain
        if _is_of_transport(one) and one.line > steps.get(one.file, 0) and _whose(one) not in ended
    }
    faults = {*map(_whose, (*own_errors(facts), *facts.said("timeout", "crash")))}
    files = {one.file for one in told.values()}
    last = {f"rank {rank}": line for rank, line in facts.words.items() if rank >= 0} | {
        _named(file, rank_in_name(file)): RankLine(file, *lines[-1])
        for file, lines in facts.last.items()
        if file not in files and _masked(file) in map(_masked, files)
    }
    who = tuple(sorted(last.keys() - told.keys() - faults))
    if len(told) < AT_LEAST or not are_few(who, told) or first_failure(facts):
        return
    cause, id_ = "rank_failed", "ended-in-silence"
    if all(WAITED in one.text for one in told.values()):
        cause, id_ = "slow_rank_or_io", "waited-in-vain"
    yield Evidence(
        cause,
        STRONG,
        f"{listed(who, AT_LEAST)} ended without a word; {len(told)} others lost their connection",
        tuple(told.values())[:2],
        id_,
        who=who,
        places=tuple(
            {**evidence_of(last[one]), "says": f"last line of {one}: {last[one].text}"}
            for one in who
        ),
    )


def _named(file: str, rank: int | None) -> str:
    """A rank, or the file of one whose number is not known."""
    return f"file {PurePath(file).name}" if rank is None else f"rank {rank}"


def _whose(event: Event) -> str:
    return _named(event.file, rank_of(event))


def _is_of_transport(event: Event) -> bool:
    """Whether a line is about a connection to another process. Every rank prints it, whatever is
    wrong between them."""
    return any(word in event.text for word in names_in("transport"))


def _masked(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def _is_own_fault(first: Event) -> bool:
    """Whether the failure is one of the program or of its process; an exception of a library may
    have a cause outside, which no line names."""
    what = (first.fields.get("what") or "").rsplit(".", 1)[-1]
    return not what.endswith(
        (
            "RuntimeError",
            "AcceleratorError",
            "BackendError",
            "launch failure",
            "illegal memory access was encountered",
        )
    )


def scheduler_ended_the_job(facts: Facts) -> Iterator[Evidence]:
    """The scheduler or somebody ended a job that had not failed before. Without a step until then
    it may have hung, and with steps too, so that the time limit is never sure. Who cancels a job
    has a reason: any other evidence comes first. Where steps follow, what ended was another job or
    pod, or an earlier start.

    Decides diagnose_batches/14/f08.
    """
    ends = {event.id: event for event in reversed(facts.said("slurm_ended"))}
    for name, end in ends.items():
        before = [event for event in facts.plain if end.follows(event)]
        # a progress bar of epochs is one of training; those of loading and preparing are not
        steps = [event.line for event in facts.of("training_step") if event.file == end.file] + [
            one.line for one in before if one.fact == "bar" and "poch" in one.text
        ]
        if (step := max(steps, default=0)) > end.line:
            continue
        without = (
            "the job shows no step before it was ended"
            if not step
            and (
                any(event.fact in names_in("output") for event in before)
                or (" AT " in end.text and end.line > FEW_LINES)
            )
            else None
        )
        if why := _reason_before(facts, end, step) or without:
            yield Evidence(
                "ended_by_scheduler",
                HARDLY - SUPPORTING,
                why,
                (end,),
                "ended-for-a-reason",
            )
        elif name != CANCELLED:
            weight = STRONG if name == TIME_LIMIT else DECISIVE
            yield Evidence("ended_by_scheduler", weight, end.signature.says, (end,), name)


def _reason_before(facts: Facts, end: Event, step: int) -> str | None:
    """Why a job was ended that had failed or hung before: after its last step, or reported anywhere
    else; None for a job that ran."""
    faults = [
        event
        for event in (*own_errors(facts), *facts.faults)
        if event.fact not in names_in("from_outside")
        and event.file == end.file
        and step - BESIDE_LINES < event.line < end.line
    ]
    stands = [
        event
        for event in hang_signs(facts)
        if event.fact == "hang_told"
        or (event.fact != "interrupted" and (event.file != end.file or event.line < end.line))
    ]
    others = [
        event
        for event in facts.plain
        if end.id == CANCELLED and event.signature.for_.keys() - end.signature.for_.keys()
    ]
    return (
        "the job failed or hung before it was ended"
        if faults or stands
        else "another cause may be why it was cancelled"
        if others
        else None
    )


def killed_first(facts: Facts) -> Event | None:
    """A process that was killed before any rank timed out; afterwards launchers kill the remaining
    processes."""
    waits = facts.said("timeout", "store_timeout")
    killed = facts.said("killed")
    return (
        killed[0] if killed and not any(comes_before(wait, killed[0]) for wait in waits) else None
    )


def failure_before_waits(facts: Facts) -> Event | None:
    """What failed or was killed before others waited in vain."""
    return first_failure(facts) or killed_first(facts)


def first_failure(facts: Facts) -> Event | None:
    """The first process or host that failed by itself; None if an error with a known cause precedes
    or accompanies it."""
    with_cause = [event for event in facts.events if names_its_cause(event)]
    places = {event.place for event in with_cause}
    ended = [
        event
        for event in facts.said(*names_in("endings"))
        if event.place not in places
        and not _is_swept(facts, event)
        and not _is_of_transport(event)
        and not (
            _was_caught(facts, event)
            and any(one.follows(event, CHAIN_WITHIN) for one in with_cause)
        )
    ]
    explained = _explained_by_hardware(facts, with_cause)
    files = Counter(text for text, _ in {(_masked(one.text), one.file) for one in ended})
    # what many print follows from what one of them printed before
    many = [one for one in ended if files[_masked(one.text)] >= AT_LEAST]
    after = {one.file: one.line for one in reversed(many)}
    ended = [
        one for one in ended if one not in many and one.line < after.get(one.file, one.line + 1)
    ] or ended
    for event in sorted(ended, key=lambda one: one.place):
        others = [one for one in (*with_cause, *ended) if one is not event]
        if event.place not in explained and not any(comes_before(one, event) for one in others):
            return most_telling(event, ended)
    return None


def _was_caught(facts: Facts, event: Event) -> bool:
    """Whether the program handled the exception, so that a later one ended the process. Its message
    may have several lines."""
    return any(one.follows(event, CAUGHT_WITHIN) for one in facts.of("exception_caught"))


def _explained_by_hardware(facts: Facts, with_cause: Sequence[Event]) -> set[tuple[str, int]]:
    """Failures of CUDA kernels in a job whose hardware has faults in the kernel log; the order of
    these lines does not matter."""
    if not any({*names_in("hardware")} & {*event.signature.for_} for event in with_cause):
        return set()
    return {event.place for event in facts.events if event.id == "cuda-kernel-failed"}


def _is_swept(facts: Facts, event: Event) -> bool:
    """Whether the process ended after, and so because of, another one's timeout. Needs a watchdog
    line or a time stamp."""
    if _tells_of_the_time_limit(facts, event):
        return True
    if _had_failed_in_silence(facts, event):
        return False
    return any(comes_before(wait, event) for wait in facts.said("timeout", "store_timeout"))


def _tells_of_the_time_limit(facts: Facts, event: Event) -> bool:
    """Whether the next line says what was raised, and that is the watchdog's own error: C++ and
    Hydra print two lines for it."""
    return any(
        wait.file == event.file
        and wait.line == event.line + 1
        and any(mark in wait.text for mark in RAISED)
        for wait in facts.of("timeout")
    )


def _had_failed_in_silence(facts: Facts, event: Event) -> bool:
    rank = rank_of(event)
    return rank is not None and event.prefix.time is None and rank not in facts.gave_up


def names_its_cause(event: Event) -> bool:
    """Whether the line is an error that supports a cause by itself."""
    signature = event.signature
    return (
        signature.kind == "error"
        and not (event.quoted or event.source)
        and bool({"decisive", "strong"} & set(signature.for_.values()))
    )


def echoes_of(facts: Facts, first: Event) -> list[Event]:
    """Symptoms of other ranks that do not come before the failure; a rank without a watchdog line
    had failed before, wherever its lines are. What the failed rank printed before it failed is no
    consequence where others print it too."""
    rank = rank_of(first)
    silent = _had_failed_in_silence(facts, first)
    faults = {event.place for event in facts.of("gdrcopy_missing") if event.kind == "error"}
    own = {
        event.id
        for event in facts.events
        if rank is not None and rank_of(event) == rank and not comes_before(first, event)
    }
    return [
        event
        for event in facts.faults
        if event.kind == "symptom"
        and not event.source
        and event.fact not in names_in("reports")
        and event.place not in {first.place, *faults}
        and (silent or not comes_before(event, first))
        and (rank is None or rank_of(event) != rank)
        and event.id not in own
    ]


def comes_before(one: Event, other: Event) -> bool:
    """Whether `one` is known to be earlier: by its time stamp, or by its line in the same file.
    Files without time stamps cannot be compared."""
    if one.prefix.time and (later_s := one.prefix.time.since(other.prefix.time)):
        return later_s < 0
    return other.follows(one)


def who_failed(facts: Facts, event: Event) -> str:
    """The failed process, such as "rank 3 on gpu007", as far as the log names it."""
    rank, host = rank_of(event), event.fields.get("host") or event.prefix.host
    if rank is None and (known := facts.rank_and_host(event)):
        rank, host = known
    if rank is None and (failed := failed_of_root(facts)):
        rank = failed.rank
        host = host or next((one.fields.get("host") for one in facts.of("failed_host")), None)
    if event.fact == "host_lost":
        return f"host {host or event.fields.get('address') or '(not named)'}"
    if event.fact == "task_lost":
        return f"task {event.fields.get('task') or event.fields.get('named')}"
    return (f"rank {rank}" if rank is not None else "a process") + (f" on {host}" if host else "")


class Failed(NamedTuple):
    """The process that a launcher names as the first one that failed. exit: the line with its exit
    code."""

    rank: int
    exit: Event


def failed_of_root(facts: Facts) -> Failed | None:
    """The process that torchrun lists below "Root Cause"; the launcher ended those above after
    it."""
    for root in facts.of("root_cause"):
        below = [event for event in facts.of("failed_rank") if event.follows(root)]
        exits = [event for event in facts.of("failed_exit") if below and event.follows(below[0])]
        if below and exits:
            return Failed(int(below[0].fields["rank"] or 0), exits[0])
    return None
