"""Rules over recordings of a hanging job: flight recorders, NCCL's trace of calls, its RAS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from unhang.core.verdict.rendering import ranks_wait
from unhang.core.verdict.waited_rows import waited_for_row, waited_headline, waited_lines
from unhang.core.verdict.waiting import LIKELY, POSSIBLE, SURE, WaitedFor
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.meaning.evidence import WEIGHTS, Evidence
from unhang.jobs.diagnose.meaning.signs import hang_signs
from unhang.jobs.diagnose.rank_names import named_ranks, ring_in_words
from unhang.jobs.diagnose.ras_standing import LEFT, named_roots
from unhang.jobs.diagnose.waits import IN_ANOTHER_ORDER

STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]

_BY_CERTAINTY = {SURE: STRONG, LIKELY: SUPPORTING + 1, POSSIBLE: SUPPORTING}  # weights of a root
MOST_SHOWN = 4


def _ranks(ranks: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"rank {rank}" for rank in ranks)


def recorders_differ(facts: Facts) -> Iterator[Evidence]:
    """Flight recorders of ranks show different calls under one number of a group, ranks that others
    wait for, or ranks that wait for each other.

    Decides diagnose/rank_desync_app/recorders.
    """
    if facts.flights is None:
        return
    answer = facts.flights.answer
    for wait in answer.different[:MOST_SHOWN]:
        fewest, *more = sorted(wait.calls.values(), key=len)
        calls = "; ".join(
            f"{what}: {named_ranks(ranks)}" for what, ranks in list(wait.calls.items())[:MOST_SHOWN]
        )
        yield Evidence(
            "rank_desync_app",
            WEIGHTS["decisive"] if wait.group.members else SUPPORTING + 1,
            f"flight recorder: operation {wait.seq} of group {wait.group.name} differs: {calls}",
            (), "recorders-differ", who=_ranks(fewest) if len(fewest) < len(more[0]) else (),
        )  # fmt: skip
    if answer.roots and not answer.left_the_order:
        yield from _recorders_await(answer)
    if answer.ring:
        why = f"flight recorder: {ring_in_words(answer)}"
        odd = answer.roots if answer.left_the_order else ()
        yield Evidence(
            "rank_desync_app", SUPPORTING + 1, why, (), "recorders-ring", who=_ranks(odd)
        )
    if answer.full and not answer.roots and not answer.ring and facts.of("timeout"):
        one = answer.full[0]
        why = (
            f"flight recorder: all members of {one.group.name} entered {one.operation} {one.seq},"
            " and none has finished it"
        )
        yield Evidence("watchdog_timeout_too_short", SUPPORTING, why, (), "recorders-stuck")


def _recorders_await(answer: WaitedFor) -> Iterator[Evidence]:
    """The ranks that others wait for. What they do meanwhile is in no dump."""
    row = waited_for_row(answer) or {}
    why = f"flight recorder: {'; '.join([waited_headline(row), *waited_lines(row)])}"
    lags = set(answer.roots) <= {rank for wait in answer.waits for rank in wait.queued}
    beside = (
        "rank_failed" if set(answer.roots) & set(answer.missing)
        else "xid_hardware" if lags
        else "rank_desync_app"
    )  # fmt: skip
    name = "recorders-lag" if lags else "recorders-behind"
    for cause, weight in (("slow_rank_or_io", _BY_CERTAINTY[answer.certainty]), (beside, HINTING)):
        yield Evidence(cause, weight, why, (), name, who=_ranks(answer.roots))


def traces_differ(facts: Facts) -> Iterator[Evidence]:
    """NCCL's trace of calls differs between ranks. A rank that is behind matters only if the job
    hung, because the log of a running job can end anywhere, and if it waits in no other
    communicator.

    Decides diagnose_batches/13/e37.
    """
    hangs = bool(hang_signs(facts))
    for one in facts.calls:
        late = [rank for rank in one["behind"] if rank["awaited"]]
        places = tuple(
            {name: place[name] for name in ("file", "line", "text")} for place in (*late[:4], one)
        )
        if one["calls"]:
            calls = "; ".join(
                f"{what}: ranks {', '.join(ranks[:8])}"
                for what, ranks in list(one["calls"].items())[:4]
            )
            why = f"NCCL's trace: call {one['number']} differs: {calls}"
            yield Evidence(
                "rank_desync_app", STRONG + 1, why, (), "traces-differ", places=places[-1:]
            )
        elif late and hangs:
            behind = ", ".join(
                f"{rank['rank']} (at {rank['op']} {rank['number']})" for rank in late[:8]
            )
            why = (
                f"NCCL's trace: ranks {behind} did not call {one['op']} {one['number']} in which"
                " the others wait"
            )
            for cause, weight in (
                ("rank_desync_app", SUPPORTING + 1),
                ("slow_rank_or_io", SUPPORTING + 1),
                ("watchdog_timeout_too_short", -SUPPORTING),
            ):
                yield Evidence(cause, weight, why, (), "traces-behind", places=places)


def ras_names_ranks(facts: Facts) -> Iterator[Evidence]:
    """NCCL's RAS names ranks that launched fewer operations than others, wait for each other, left
    a communicator, or do not answer.

    Decides diagnose_outputs/what_experts_read/ras-counts.
    """
    ras = facts.ras
    if ras is None or ras.moved or not (named := named_roots(ras)):
        return
    waited = ras.waited
    who = ", ".join(ras.who(rank) for rank in named[:8])
    places = tuple(line for rank in named[:4] if (line := ras.line_of(rank)))
    if waited.left_the_order:
        why = f"RAS: {who} {IN_ANOTHER_ORDER}"
        weights = {"rank_desync_app": SUPPORTING + 1}
    elif waited.roots:
        wait = waited.waits[0]
        why = (
            f"RAS: {who} launched fewer operations:"
            f" {ranks_wait(len(wait.waiting))} in {wait.operation} #{wait.seq}"
        )
        weights = {"slow_rank_or_io": HINTING, "rank_desync_app": HINTING - 0.1}
    elif waited.different:
        why = f"RAS: {who} called another operation than the others of its communicator"
        weights = {"rank_desync_app": STRONG + 1}
    elif waited.ring:
        why = f"RAS: {who} wait for each other, each in an operation that the other has not called"
        weights = {"rank_desync_app": STRONG + 1}
    elif ras.left:
        why = f"RAS: {who} {LEFT}"
        weights = {"rank_desync_app": STRONG, "rank_failed": HINTING}
    else:
        is_dead = any(ras.standing.missing.values())
        found = "is dead" if is_dead else "does not answer: stopped, gone or in the kernel"
        why = f"RAS: {who} {found}"
        weights = {"rank_failed": STRONG if is_dead else SUPPORTING, "slow_rank_or_io": HINTING}
    for cause, weight in weights.items():
        yield Evidence(
            cause, weight, why, (), "ras-behind", places=places, who=tuple(map(ras.label, named))
        )
