"""Rules over recordings of a hanging job: flight recorders, NCCL's trace of calls, its RAS."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.core.catalogue.own_tables import table
from unhang.core.verdict.waited_rows import waited_for_row, waited_words
from unhang.core.verdict.waiting import LIKELY, MESSAGE, POSSIBLE, SURE, WaitedFor
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.meaning.evidence import (
    DECISIVE,
    HINTING,
    STRONG,
    SUPPORTING,
    WEAK,
    Evidence,
    weighed,
)
from unhang.jobs.diagnose.meaning.signs import hang_signs
from unhang.jobs.diagnose.rank_names import IN_A_RING, each_rank, named_ranks
from unhang.jobs.diagnose.ras_standing import MOST_SHOWN, kind_and_words, named_roots
from unhang.jobs.diagnose.waits import odd_callers

_BY_CERTAINTY = {SURE: STRONG, LIKELY: SUPPORTING + 1, POSSIBLE: SUPPORTING}  # weights of a root


def recorders_differ(facts: Facts) -> Iterator[Evidence]:
    """Flight recorders of ranks show different calls under one number of a group, ranks that others
    wait for, or ranks that wait for each other.

    Decides diagnose/rank_desync_app/recorders.
    """
    yield from _ring("stacks", facts.messages)
    if facts.flights is None:
        return
    answer = facts.flights.answer
    for wait in answer.different[:MOST_SHOWN]:
        calls = "; ".join(f"{what}: {named_ranks(ranks)}" for what, ranks in wait.calls.items())
        yield Evidence(
            "rank_desync_app",
            DECISIVE if wait.group.members else SUPPORTING + 1,
            f"flight recorder: operation {wait.seq} of group {wait.group.name} differs: {calls}",
            (), "recorders-differ", who=each_rank(odd_callers(wait)),
        )  # fmt: skip
    if facts.answer.roots and answer.roots and not answer.left_the_order:
        yield from _recorders_await(answer, facts.answer)
    yield from _ring("flight recorder", answer)


def _ring(source: str, answer: WaitedFor) -> Iterator[Evidence]:
    if answer.ring:
        odd = answer.roots if answer.left_the_order else ()
        is_message = answer.crossed[0].operation == MESSAGE
        yield Evidence(
            "rank_desync_app", SUPPORTING + 1, f"{_waits(answer, source)}; {IN_A_RING}", (),
            "wrong-peer" if odd and is_message else "ranks-in-a-ring",
            places=tuple(
                {"file": step.source, "line": step.line, "text": step.where}
                for wait in answer.crossed
                for step in wait.steps
                if step.line
            )[:MOST_SHOWN],
            who=each_rank(odd),
        )  # fmt: skip


def _recorders_await(answer: WaitedFor, joined: WaitedFor) -> Iterator[Evidence]:
    """The ranks that others wait for, as certain as all evidence together. What they do meanwhile
    is in no dump."""
    lags = set(answer.roots) <= {rank for wait in answer.waits for rank in wait.queued}
    name = "recorders-lag" if lags else "recorders-behind"
    weights = {"slow_rank_or_io": _BY_CERTAINTY[joined.certainty]}
    if lags or {*answer.roots} & {*answer.missing}:
        weights["xid_hardware" if lags else "rank_failed"] = HINTING
    yield from weighed(weights, _waits(answer), (), name, who=each_rank(answer.roots))


def _waits(answer: WaitedFor, source: str = "flight recorder") -> str:
    return f"{source}: {waited_words(waited_for_row(answer))}"


def traces_differ(facts: Facts) -> Iterator[Evidence]:
    """NCCL's trace of calls differs between ranks. A rank that is behind matters only if the job
    hung, because the log of a running job can end anywhere, and if it waits in no other
    communicator.

    Decides diagnose_batches/13/e37.
    """
    if (trace := facts.traced) is None:
        return
    for wait in trace.answer.different[:MOST_SHOWN]:
        group = wait.group.name
        calls = "; ".join(
            f"{what}: {trace.who(ranks, group)}" for what, ranks in wait.calls.items()
        )
        why = f"NCCL's trace: call {wait.seq} of {group} differs: {calls}"
        places = tuple(
            trace.calls[rank, group].place for rank in min(wait.calls.values(), key=len)[:1]
        )
        yield Evidence("rank_desync_app", STRONG + 1, why, (), "traces-differ", places=places)
    for wait in trace.answer.waits[:1] if hang_signs(facts) else ():
        group = wait.group.name
        roots = [rank for rank in trace.answer.roots if rank in wait.awaited][:MOST_SHOWN]
        why = f"NCCL's trace: {trace.who(roots, group)} did not call {wait.operation} {wait.seq}"
        places = tuple(trace.calls[rank, group].place for rank in (*roots, *wait.waiting[:1]))
        weights = dict.fromkeys(("rank_desync_app", "slow_rank_or_io"), SUPPORTING + 1)
        weights["watchdog_timeout_too_short"] = -SUPPORTING
        yield from weighed(weights, why, (), "traces-behind", places=places)


def ras_names_ranks(facts: Facts) -> Iterator[Evidence]:
    """NCCL's RAS names ranks that launched fewer operations than others, wait for each other, left
    a communicator, or do not answer.

    Decides diagnose_outputs/what_experts_read/ras-counts.
    """
    ras = facts.ras
    if ras is None or ras.moved or not (named := named_roots(ras)):
        return
    kind, words = kind_and_words(ras, named)
    places = tuple(line for rank in named[:MOST_SHOWN] if (line := ras.line_of(rank)))
    who = tuple(map(ras.label, named))
    rows = [row for row in table("causes_by_ras").values() if row["kind"] == kind]
    # one look at RAS and at stacks may be one moment of a healthy job
    is_once = facts.seen.stands and ras.waited.certainty == POSSIBLE
    weights = {row["cause"]: WEAK if is_once else row["weight"] for row in rows}
    yield from weighed(weights, f"RAS: {words}", (), "ras-behind", places=places, who=who)
