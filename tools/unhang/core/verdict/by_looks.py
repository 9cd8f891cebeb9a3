"""Who is waited for, by looks at a running job's ranks. Values in, values out.

Certain evidence comes first, as in the smoke test and by its code: a process that is gone, stopped,
or hangs in the kernel; then the rank that never entered the operation in which others wait; then
ranks in different operations; then all in the same one. Work that moves on (compiling, loading,
saving) is no hang.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from unhang.core.text import counted
from unhang.core.verdict.activities import BACKWARD, STARTING, WAITS
from unhang.core.verdict.all_wait import all_in, everybody_is, is_quiet, some_are
from unhang.core.verdict.awaits import wait_words
from unhang.core.verdict.ends import (
    NEXT,
    ended_ranks,
    never_came,
    never_meet,
    silent_ranks,
    stopped_or_stuck,
)
from unhang.core.verdict.job import (
    ASKS,
    BYTES,
    HUNG,
    IDLE,
    MOVES,
    RUNNING,
    UNKNOWN,
    Job,
    RankLook,
    Verdict,
    ranks_of,
    waiting_ranks,
)
from unhang.core.verdict.joined import Seen, one_answer
from unhang.core.verdict.rendering import fold_ranks, ranks_wait
from unhang.core.verdict.stands import (
    COMPILING,
    RUNNING_CORES,
    busy_word,
    is_at_rest,
    may_work,
    stand_of,
)
from unhang.core.verdict.suspect import Suspect
from unhang.core.verdict.waiting import WaitedFor, are_few

LONG_OR_ENDLESS = (
    "it runs Python code, work that takes long or a loop that never ends: look again in a minute"
)
KERNEL = (
    "it waits for its GPU, which is busy at the same line in both looks: a kernel that takes long"
    " or never ends; look again in a minute"
)


def judge_looks(job: Job) -> Verdict:
    """Who is waited for, and whether the job hangs."""
    standing = job.standing
    if not job.looks:
        return Verdict(UNKNOWN, [], "no rank was found")
    if all(look.is_ended for look in job.looks):
        return Verdict(
            UNKNOWN,
            [],
            "the job has ended, none of its processes is left; unhang diagnose LOG says why",
        )
    ended, stuck = ended_ranks(job), [*stopped_or_stuck(job)]
    words = {busy_word(look) for look in job.looks if not look.is_ended}
    if ended and not stuck and len(words) == 1 and None not in words:
        return Verdict(
            str(*words), [], f"{_who(ended)}, but the ranks that are left are {str(*words)}"
        )
    if ended and not stuck and any(map(may_work, job.looks)):
        return Verdict(UNKNOWN, ended, f"{_who(ended)}, but one that is left runs Python code")
    if ended or stuck:
        return Verdict(HUNG, [*ended, *stuck], _who([*ended, *stuck]))
    if standing.moved:
        slow = standing.waited.roots
        last = f"; rank {fold_ranks(slow)} comes last" if slow else ""
        return Verdict(RUNNING, [], f"collectives were launched between the two looks{last}")
    if (standing.missing or standing.lags) and any(look.log_grew for look in job.looks):
        return Verdict(
            RUNNING, [], "its log grew between the two looks, although RAS counts no new collective"
        )
    if standing.missing:
        there = [look for look in job.looks if look.rank in standing.missing and look.states]
        named = [stand_of(look.rank, look, standing) for look in there if look.doing]
        is_sure = standing.moved is False and (
            all(map(is_at_rest, there)) if named else len(there) < len(standing.missing)
        )
        named = named or [*silent_ranks(job.looks, standing)]
        return Verdict(HUNG if is_sure else UNKNOWN, named, _who(named))
    by_rank = {look.rank: look for look in job.looks}
    waiting, others = sides_of(job)
    left = [(rank, by_rank.get(rank)) for rank in standing.left]
    # most leave their communicators when a job ends
    if 0 < 2 * len(left) <= (standing.world_size or 0) and (waiting or not others):
        return _waited_for(job, left, waiting)
    answer = one_answer([standing.waited, _recorded(job)], _seen(job, waiting, others))
    if not standing.waited.names_somebody:
        return _by_stacks(
            job, waiting, [one for one in others if one.rank in answer.roots] or others
        )
    stand = [(rank, by_rank.get(rank)) for rank in answer.roots or answer.ring]
    if stand and {*answer.ring}.issuperset(answer.roots):
        named = [
            replace(one, next=NEXT["split"], cause="rank_desync_app")
            for one in [stand_of(*one, standing) for one in stand]
        ]
        crossed = (
            "two groups that share ranks are called in opposite order"
            if len({lag.communicator for lag in standing.lags}) > 1
            else "ranks wait for each other in different operations"
        )
        sides = [
            f"rank {fold_ranks(one.waiting)} in {one.operation} number {one.seq} for rank"
            f" {fold_ranks(one.awaited)}"
            for one in answer.crossed
        ]
        who = _who(named) if answer.roots else f"waiting are {', '.join(sides)}"
        return Verdict(HUNG, named, f"{crossed}: {who}")
    if stand:
        counted_ranks = {rank for one in answer.waits for rank in one.waiting}
        return _waited_for(job, stand, waiting, counted_ranks)
    return _by_stacks(job, waiting, others)


def sides_of(job: Job) -> tuple[list[RankLook], list[RankLook]]:
    """(those who wait for others, those who do not), by their stacks."""
    free = [look for look in job.looks if look.awaits_engine]
    waiting = [look for look in job.looks if look in free or _waits(look)]
    others = [look for look in job.looks if look.doing and look not in waiting]
    if free and not others:  # who is back in the queue left the collective, or never entered it
        return free, [look for look in waiting if look not in free]
    # who calls .item() has no frame that says what it waits for
    spinning = [one for one in others if one.spins and one.moved is False and not is_at_rest(one)]
    rest = [one for one in others if one not in spinning]
    if rest and (all(map(is_at_rest, rest)) or are_few(rest, spinning)):
        return [*waiting, *spinning], rest
    return waiting, others


def _seen(job: Job, waiting: Sequence[RankLook], others: Sequence[RankLook]) -> Seen:
    """What the looks show, for one_answer()."""
    works = [look for look in others if busy_word(look)]
    return Seen(
        waiting_ranks(job.looks), ranks_of(others), ranks_of(works),
        ranks_of(look for look in works if busy_word(look) == IDLE),
        any(look.moved for look in waiting),
    )  # fmt: skip


def _recorded(job: Job) -> WaitedFor:
    """Whom dumps name. They are of an earlier moment: they decide among those whom others name, and
    whoever waited in a ring then may not now."""
    found = job.recording.answer if job.recording else WaitedFor()
    return WaitedFor(() if found.left_the_order else found.roots)


def _who(named: Sequence[Suspect]) -> str:
    first = named[0]
    who = f"rank {first.rank}" if first.rank is not None else "the job"
    more = f", and {counted(len(named) - 1, 'more rank')}" if len(named) > 1 else ""
    return f"{who}{f' on {first.host}' if first.host else ''}: {first.why}{more}"


def _waited_for(
    job: Job,
    stand: Sequence[tuple[int | None, RankLook | None]],
    waiting: Sequence[RankLook],
    counted: Collection[int] = (),
) -> Verdict:
    """For whom the others wait. counted: who waits by RAS, where RAS reports it."""
    busy = [(rank, look, word) for rank, look in stand if look and (word := busy_word(look))]
    if len(busy) == len(stand):
        _, look, word = busy[0]
        where = f" in {look.where}" if look.where else ""
        who = fold_ranks([rank or 0 for rank, *_ in busy])
        waits = ranks_wait(len(counted or waiting))
        return Verdict(word, [], f"rank {who} is {word}{where}{_and_waits(look)}, {waits} for it")
    rest = [(rank, look) for rank, look in stand if not busy_word(look)]
    named = [stand_of(rank, look, job.standing, waiting) for rank, look in rest]
    known = [look for _, look in rest if look]
    if not any(look.doing or look.waited for look in known):
        return Verdict(
            UNKNOWN, named, f"{_who(named)}; whether it is busy or stuck only its stack shows"
        )
    # who waits may spin: that their engine took no answer says it as well
    if not (
        counted
        or is_quiet(job, waiting)
        or all(look.engine == ASKS and look.waited for look in known)
    ):
        return Verdict(
            UNKNOWN,
            named,
            f"{_who(named)}; whether it moves is not known without RAS: look again with a longer"
            " --gap",
        )
    if len(known) == len(named) and all(map(may_work, known)):
        return Verdict(UNKNOWN, named, f"{_who(named)}; {_long_or_endless(job.looks, known)}")
    return Verdict(HUNG, named, _who(named))


def _long_or_endless(looks: Sequence[RankLook], stand: Sequence[RankLook]) -> str:
    """In words, of ranks that may work: one of which no line moved while the GPU that it has for
    itself is busy runs no Python."""
    if came := next((look.arrives for look in stand if look.arrives), None):
        return f"{came}, its work or a monitor's: look again in a minute"
    shared = [(look.host, look.gpu) for look in looks]
    alone = all(shared.count((look.host, look.gpu)) == 1 for look in stand)
    waits = alone and all(look.moved is False and look.spins for look in stand)
    return KERNEL if waits else LONG_OR_ENDLESS


def _by_stacks(job: Job, waiting: Sequence[RankLook], others: Sequence[RankLook]) -> Verdict:
    """RAS does not tell them apart, or did not answer."""
    came = never_meet(job) or never_came(job)
    if came:
        return Verdict(STARTING, came, came[0].why)
    if any(look.engine == MOVES for look in job.looks):
        return Verdict(RUNNING, [], "their engine moved between the two looks")
    if all(busy_word(look) == IDLE and look.engine for look in job.looks):
        return Verdict(IDLE, [], f"{everybody_is(job)} idle: no request")
    free = [look for look in waiting if look.awaits_engine]
    # RAS counts no replay of a graph, nor what another library sends
    told_apart = (
        not job.standing.version or all(map(busy_word, others)) or all(map(is_at_rest, others))
    )
    if waiting and others and (free or told_apart):
        if any(look.moved for look in waiting):
            return Verdict(RUNNING, [], "the ranks' stacks moved between the two looks")
        return _waited_for(job, [(look.rank, look) for look in others], waiting)
    if free and free[0].engine != ASKS:
        stands = f"is in {free[0].engine}" if free[0].engine else "could not be read"
        return Verdict(UNKNOWN, [], f"all ranks wait for their engine, which {stands}")
    words = ((look, busy_word(look)) for look in job.looks)
    busy = {word for look, word in words if word and (look.doing or word == COMPILING)}
    if busy and not waiting:
        word = sorted(busy)[0]
        return Verdict(
            word,
            [],
            f"{some_are(sum(busy_word(look) == word for look in job.looks), len(job.looks))}"
            f" {word}",
        )
    if waiting and all(look.computes for look in job.looks):
        return Verdict(
            RUNNING,
            [],
            f"{everybody_is(job)} waiting for GPUs that compute: a long step",
        )
    if moved := [look.signs[sign] for look in waiting for sign in BYTES if sign in look.signs]:
        return Verdict(RUNNING, [], f"data moves between the ranks: {moved[0]}")
    if any(look.moved for look in job.looks):
        return Verdict(RUNNING, [], "the ranks' stacks moved between the two looks")
    places = {look.where for look in job.looks}
    if len(waiting) == len(job.looks):
        return all_in(job, waiting)
    if len(places) == 1 and "" not in places and all(look.spins for look in job.looks):
        return all_in(job, job.looks)
    if any(look.log_grew for look in job.looks):
        return Verdict(RUNNING, [], "its log grew between the two looks")
    if moved := [words for look in job.looks for words in look.signs.values()]:
        return Verdict(RUNNING, [], moved[0])
    if job.standing.version and not any(look.doing for look in job.looks):
        return Verdict(
            UNKNOWN,
            [],
            "RAS counts the same for all ranks: a long step, or a path that is dead; stacks and the"
            " driver would show",
        )
    if not any(look.doing for look in job.looks):
        return _by_proc(job)
    if all(may_work(look) for look in job.looks):
        return Verdict(UNKNOWN, [], _long_or_endless(job.looks, job.looks))
    spy = "" if all(look.doing for look in job.looks) else ", or with py-spy"
    return Verdict(
        UNKNOWN, [], f"the looks do not show whether it moves; look again with a longer --gap{spy}"
    )


def _and_waits(look: RankLook) -> str:
    words, moved = wait_words(look), next(iter(look.signs.values()), "")
    return (f" and {words}" if words else "") + (f" ({moved})" if moved else "")


def _waits(look: RankLook) -> bool:
    """Whether a rank waits for others: in a collective, or asleep in the backward pass, which
    awaits the gradients of all."""
    return look.activity in WAITS and (look.waited or look.activity != BACKWARD)


def _by_proc(job: Job) -> Verdict:
    """Neither RAS nor stacks: a rank that alone sleeps while the others spin, as ranks do that wait
    for a GPU. A hint, no more."""
    asleep = [look for look in job.looks if is_at_rest(look)]
    spin = sum((look.cpu or 0) > RUNNING_CORES for look in job.looks)
    if len(asleep) == 1 and 0 < spin == len(job.looks) - 1:
        [one] = (replace(stand_of(look.rank, look, job.standing), blind=True) for look in asleep)
        why = f"{_who([one])}, while the others spin as if for a GPU; a hint, no proof"
        return Verdict(UNKNOWN, [one], why)
    return Verdict(
        UNKNOWN,
        [],
        "neither RAS nor stacks could be read; what /proc and the driver say is alike for"
        " all ranks",
    )
