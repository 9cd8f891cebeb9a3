"""Rules over timeouts: which collective the ranks wait in, which ranks wait, and what else they
print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from unhang.core.text import counted
from unhang.core.verdict.waited_rows import waited_words
from unhang.jobs.diagnose.fitting_remedies import serves
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.log_groups import Timeout, begun_late, size_that_must_agree
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.meaning.evidence import (
    HINTING,
    STRONG,
    SUPPORTING,
    WEAK,
    Evidence,
    weighed,
)
from unhang.jobs.diagnose.meaning.rules.failures import failure_before_waits
from unhang.jobs.diagnose.rank_names import IN_A_RING, each_rank, named_ranks

START_UP_SEQ = 50  # a collective so early belongs to start-up
# elements; such a collective is a barrier or a message about the state, not a transfer of data
TINY = 1024
LATE_SEQ = 1000  # a collective so late does not belong to start-up
# numbered for each pair of ranks, so that numbers and operations differ in every pipeline
BETWEEN_STAGES = {"SEND", "RECV"}
# torch prints the largest number for a batch of messages, which has no size
SIZE_OF_A_BATCH = "NumelIn=18446744073709551615"
MOST_UNLIKE = 4  # values that are shown where ranks differ


def ranks_called_different_things(facts: Facts) -> Iterator[Evidence]:
    """Ranks of one group wait in different operations or sizes under one number, or at different
    numbers.

    Decides diagnose_real_frameworks/dcp-save-without-rank3,
    diagnose_user_jobs/metric-returns-early-on-empty-shard, diagnose_batches/3/039.
    """
    by_group: dict[str | None, list[Timeout]] = {}
    late = begun_late(facts.timeouts)
    for one in (one for one in facts.timeouts if id(one) not in late):
        by_group.setdefault(one.group, []).append(one)
    for several in by_group.values():
        alike = oldest_of_each_rank(several)
        if all(map(is_message, alike)):
            continue
        for what, (value, weight) in UNLIKE.items():
            if len({value(one) for one in alike} - {""}) > 1:
                yield _unlike(alike, value, weight, f"timeouts-differ-in-{what}")
                break


def _number(one: Timeout) -> str:
    return "" if one.seq is None else f"#{one.seq}"


def _size(one: Timeout) -> str:
    """What must agree; of an exchange, whether a rank takes part with nothing."""
    if one.op.startswith("ALLTOALL") and one.numel is not None:
        return "some elements" if one.numel else "no elements"
    size = size_that_must_agree(one)
    return counted(int(size), "element") if size else ""


UNLIKE: Mapping[str, tuple[Callable[[Timeout], str], float]] = {
    "operation": (lambda one: one.op, STRONG + 1),
    "sequence": (_number, STRONG - 0.5),
    "size": (_size, STRONG),
}


def _unlike(
    alike: Sequence[Timeout], value: Callable[[Timeout], str], weight: float, id_: str
) -> Evidence:
    """The evidence of ranks that wait unlike each other: the fewest ranks with one value come
    first, because they are who differs."""
    unknown = "no size" if value is _size else "no number"
    by_value: dict[str, list[Timeout]] = {}
    for one in alike:
        by_value.setdefault(value(one) or unknown, []).append(one)
    groups = sorted(by_value.items(), key=lambda item: len(item[1]))
    ranks = {
        what: sorted(one.rank for one in ones if one.rank is not None) for what, ones in groups
    }
    told = [f"{named_ranks(who)}: {what}" if (who := ranks[what]) else what for what, _ in groups]
    more = " …" if len(told) > MOST_UNLIKE else ""
    why = f"ranks wait in one group unlike each other ({'; '.join(told[:MOST_UNLIKE])}{more})"
    (what, fewest), (_, others) = groups[:2]
    is_odd = len(fewest) < len(others) and len(ranks[what]) == len(fewest)
    shown = [*fewest[:MOST_UNLIKE], *(ones[0] for _, ones in groups[1:MOST_UNLIKE])]
    return Evidence(
        "rank_desync_app", weight, why, tuple(one.event for one in shown), id_,
        who=each_rank(ranks[what]) if is_odd else (),
    )  # fmt: skip


def is_message(one: Timeout) -> bool:
    """Whether it is a send, a receive or a batch of them, as the stages of a pipeline make."""
    return one.op in BETWEEN_STAGES or (one.op == "COALESCED" and SIZE_OF_A_BATCH in one.event.text)


def oldest_of_each_rank(timeouts: Sequence[Timeout]) -> list[Timeout]:
    """The oldest collective of each rank: a rank whose watchdog reports many queued collectives
    waits in it."""
    kept: dict[int, Timeout] = {}
    nameless = [one for one in timeouts if one.rank is None]
    for one in timeouts:
        if one.rank is not None and (
            one.rank not in kept or (one.seq or 0) < (kept[one.rank].seq or 0)
        ):
            kept[one.rank] = one
    return [*kept.values(), *nameless]


def ranks_wait_in_one_collective(facts: Facts) -> Iterator[Evidence]:
    """All ranks that report wait in one collective: its number and size, and who has come to it,
    decide what is likely. That the limit is too short is never more than a remark here.

    Decides diagnose_real/fsdp2-rank-sleeps, diagnose_batches/6/341,
    diagnose_real/blocking-wait-timeout.
    """
    if not facts.timeouts or failure_before_waits(facts):
        return
    if facts.waits_in_groups() or facts.logged.ring:
        yield from _groups_wait(facts)
        return
    if len({(one.op, one.seq) for one in facts.timeouts}) > 1:
        return
    one, events = facts.timeouts[0], tuple(timeout.event for timeout in facts.timeouts[:6])
    if (one.numel or 0) > TINY and one.seq is not None and _is_late(facts, one.seq):
        why = "many collectives had worked before this large one, so the limit is not the reason"
        # in training a rank then made another call, or none; a server waits inside NCCL
        cause = "nccl_bug" if serves(facts) else "rank_desync_app"
        yield Evidence(cause, HINTING + 0.4, why, events[:2], "late-hang")
        return
    if all(map(is_message, facts.timeouts)):
        return
    all_came = facts.world_size == len(facts.gave_up) > 1
    if one.seq is not None and one.seq <= START_UP_SEQ and (all_came or (one.numel or 0) > TINY):
        yield from _nothing_arrives(
            facts, events[:1], SUPPORTING - 0.3 if all_came else SUPPORTING / 2
        )
    if not all_came:
        why = "ranks wait for one that has not come to this collective"
        yield Evidence("slow_rank_or_io", HINTING - 0.1, why, events, "rank-not-there")
    why = "the ranks that report wait in one collective; its limit decides only when the job ends"
    weight = WEAK if all_came else HINTING
    yield Evidence("watchdog_timeout_too_short", weight, why, events, "same-collective")
    if one.seq is not None and one.seq > LATE_SEQ:
        yield Evidence(
            "rank_desync_app",
            HINTING + 0.2,
            "many collectives had worked before this one",
            events[:1],
            "late-hang",
        )


def _groups_wait(facts: Facts) -> Iterator[Evidence]:
    """Ranks of several groups wait, and all for the same few: who it is follows from the groups,
    not what it does. Ranks that wait for each other called the groups in unlike order."""
    waited = facts.logged
    waits = waited.waits if waited.roots else waited.crossed
    if not waits:
        return
    lines = {(step.source, step.line) for one in waits for step in one.steps}
    shown = tuple(one.event for one in facts.timeouts if one.event.place in lines)[:MOST_UNLIKE]
    who = each_rank(waited.roots)
    why = waited_words(facts.waited_row())
    if waited.left_the_order or not who:
        weight = SUPPORTING + 1 if who else STRONG - 0.5
        why = f"{why}; {IN_A_RING}"
        yield Evidence("rank_desync_app", weight, why, shown, "groups-in-a-ring", who=who)
        return
    why = f"{why}; what it does there is not in these lines"
    yield Evidence("slow_rank_or_io", HINTING - 0.1, why, shown, "rank-not-there", who=who)


def _nothing_arrives(facts: Facts, events: tuple[Event, ...], weight: float) -> Iterator[Evidence]:
    """The first transfers of a job do not end: between the GPUs of one machine, or between
    machines."""
    weights, between = dict.fromkeys(("acs_iommu", "driver_p2p_bug"), weight), "GPUs"
    if len(facts.hosts) > 1:
        causes, between = ("ib_misconfig", "wrong_interface", "firewall_ports"), "machines"
        weights = {cause: weight - 0.1 * place for place, cause in enumerate(causes)}
    why = f"the hang is in start-up, in the first transfers between {between}"
    yield from weighed(weights, why, events, "start-up-transfer")


def _is_late(facts: Facts, seq: int) -> bool:
    """Whether many steps had worked: they are in the log, or the sequence number is too high for a
    start-up."""
    works = facts.said("training_step", "bar") or serves(facts)
    return seq > (LATE_SEQ if works else 10 * LATE_SEQ)


def rank_answers_no_signal(facts: Facts) -> Iterator[Evidence]:
    """A watchdog that times out asks all ranks for their state, and every live process answers,
    even a sleeping one: a rank without an answer has ended.

    Decides diagnose_real/uneven-batches, diagnose_user_jobs/engine-drops-request-by-own-clock,
    diagnose_real/fsdp-skips-forward.
    """
    waiting = {one.rank for one in facts.timeouts}
    answered = {
        event.number("rank") if (rank := event.prefix.own_rank) is None else rank
        for event in facts.said("pg_idle")
    }
    if (
        None in waiting
        or not waiting & answered
        or len(facts.hosts) > 1
        or failure_before_waits(facts)
    ):
        return
    gone = sorted({*range(facts.world_size or 0)} - answered - waiting)
    if gone or len(waiting | answered) == 1:
        who = f"rank {gone[0]}" if gone else "every other rank"
        why = (
            f"{who} did not answer the watchdog of rank {facts.timeouts[0].rank}, which asks all"
            " ranks for their state: its process had ended"
        )
        events = (facts.timeouts[0].event, facts.of("pg_idle")[0])
        weights = dict.fromkeys(("slow_rank_or_io", "watchdog_timeout_too_short"), -SUPPORTING)
        weights |= {"rank_desync_app": STRONG - 0.5, "rank_failed": SUPPORTING}
        yield from weighed(weights, why, events, "no-answer-to-signal", who=each_rank(gone[:1]))
