"""All ranks of a job wait: in different operations, or in the same one that none leaves. Values in,
values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from unhang.core.verdict.activities import COLLECTIVE, STARTING, Activity
from unhang.core.verdict.ends import NEXT
from unhang.core.verdict.job import HUNG, UNKNOWN, Job, RankLook, Verdict
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.stands import stand_of
from unhang.core.verdict.suspect import Suspect

POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list",
                  "recv_object_list"}  # fmt: skip
ORDER = "an order of calls (who sends to whom and receives from whom, and which comes first)"
GROUPS = "groups that share ranks and call in unlike order"

KERNEL = "a kernel of one rank that never ends"
PATH = "what lies between them does not carry it"


def all_in(job: Job, waiting: Sequence[RankLook]) -> Verdict:
    """The verdict on a job of which all ranks wait."""
    doing = [look.doing for look in waiting if look.doing]
    functions = _called(waiting)
    seen = {look.rank for look in job.looks}
    world = max((look.world_size or 0 for look in job.looks), default=0)
    lines = _parting(waiting)
    usual, count = Counter(lines).most_common(1)[0]
    few = [look for look, line in zip(waiting, lines, strict=True) if line != usual]
    is_clear, in_one = len(few) < count, len(functions) == 1
    # stages of a pipeline go other ways too, but not to what nobody else is in
    rest = _called(look for look in waiting if look not in few) | POINT_TO_POINT
    is_alone = len(few) * 3 <= count and not _called(few) & rest
    if functions & POINT_TO_POINT and not is_alone:
        # a message ends without those who wait in a collective
        few = [look for look in waiting if look.doing and look.doing.function in POINT_TO_POINT]
        is_clear = True
    # who waits for a GPU, or for one peer, does so at a line of its own in health too
    is_told = bool(few) and not (functions <= POINT_TO_POINT or "synchronize" in functions)
    if in_one:
        is_told &= is_clear and all(one.name == COLLECTIVE and one.awaits_ranks for one in doing)
    if is_told and is_quiet(job, waiting) and not job.gpus_move:
        named = [  # one that calls the same from a line of its own may mean it
            replace(one, cause="rank_desync_app", blind=in_one)
            for one in (stand_of(look.rank, look, job.standing)
                        for look in (few if is_clear else waiting))
        ]  # fmt: skip
        who = fold_ranks([one.rank or 0 for one in named])
        places = map(_shown, lines) if in_one else [one.function for one in doing]
        what = f"lines that lead to {min(functions)}" if in_one else "operations"
        apart = f"; rank {who} went another way" * is_clear
        return Verdict(
            HUNG, named, f"ranks wait in different {what}: {_by_place(places, waiting)}{apart}"
        )
    where = _where(waiting)
    everybody = f"{everybody_is(job)} in {where}"
    if len(seen) < world:
        others = "look at the other nodes too (--host, --slurm-job)"
        return Verdict(
            UNKNOWN,
            [],
            f"only {len(seen)} of {world} ranks could be looked at, waiting in {where}; {others}",
        )
    if job.gpus_move is None:
        return Verdict(
            UNKNOWN,
            [],
            f"{everybody}, and others have memory on their GPUs: `nvidia-smi pmon -c 5` shows whose"
            " processes compute",
        )
    if not is_quiet(job, waiting) or job.gpus_move:
        return Verdict(
            UNKNOWN,
            [],
            f"{everybody} and something still moves: a long step, or traffic; look again with a"
            " longer --gap",
        )
    if world <= 1 and not any(look.activity == COLLECTIVE for look in waiting):
        return Verdict(UNKNOWN, [], f"{everybody}, and no other rank waits for it")
    ways = _what_it_may_be(job, doing, bool(few))
    why = f"{everybody}, none left it between the looks and the links are idle: {' or '.join(ways)}"
    suspect = Suspect(None, None, None, COLLECTIVE, why, _next(job, ways))
    return Verdict(HUNG, [suspect], why)


def _called(looks: Iterable[RankLook]) -> set[str]:
    return {look.doing.function for look in looks if look.doing}


def _where(waiting: Sequence[RankLook]) -> str:
    """all_reduce, called by step (train.py:88); of several places each with its ranks."""
    places = [look.where or "?" for look in waiting]
    return places[0] if len(set(places)) == 1 else _by_place(places, waiting)


def _by_place(places: Iterable[str], waiting: Sequence[RankLook]) -> str:
    """all_gather: rank 0-2; barrier: rank 3."""
    found: dict[str, list[int]] = {}
    for place, look in zip(places, waiting, strict=True):
        found.setdefault(place, []).append(look.rank or 0)
    shown = [f"{place}: rank {fold_ranks(ranks)}" for place, ranks in sorted(found.items())[:4]]
    return "; ".join([*shown, *(["other places"] if len(found) > 4 else [])])


def _what_it_may_be(job: Job, doing: Sequence[Activity], are_apart: bool) -> list[str]:
    """What holds all ranks in one wait: the path between them alone only where the operation in
    which they wait is seen and pairs nobody. are_apart: they came to it by different lines."""
    ways = []
    if any(one.function in POINT_TO_POINT for one in doing):
        ways.append(ORDER)
    # also where it is no call that names an operation: who waits for a GPU does not say for what
    if any(one.awaits_gpu or one.name != COLLECTIVE for one in doing):
        ways += [f"{ORDER}, or of groups that share ranks", KERNEL]
    elif job.standing.sharing or are_apart:
        ways.append(GROUPS)
    return [*dict.fromkeys(ways), PATH]


def _next(job: Job, ways: Sequence[str]) -> str:
    hosts = {look.host for look in job.looks}
    if ways == [PATH] and len(hosts) > 1:
        return NEXT["path"]
    return NEXT["order"] + (f"; then {NEXT['path']}" if len(hosts) > 1 else "")


def _shown(line: str) -> str:
    """step (train.py:88): a frame without the folder of its file."""
    return f"{line.partition(' (')[0]} ({line.rpartition('/')[2]}" if "/" in line else line


def _parting(waiting: Sequence[RankLook]) -> Sequence[str]:
    """Of each rank the oldest line of the user's code that is not the same in all; its operation
    where all are. The operations do not show it: the root of a broadcast is ahead of those that
    it sends to."""
    functions = [look.doing.function if look.doing else "" for look in waiting]
    steps = zip(*(look.path for look in waiting), strict=False)  # as far as the shortest goes
    return next((places for places in steps if len(set(places)) > 1), functions)


def is_quiet(job: Job, waiting: Sequence[RankLook]) -> bool:
    """Whether those who wait did so without a break: asleep all the time, or before a GPU that
    moves no memory. Who meets the others dials again and again, and goes nowhere."""
    meet = all(look.activity == STARTING for look in waiting)
    on_gpus = any(node.has_gpus for node in job.nodes) and job.gpus_move is False
    return meet or on_gpus or any(look.waited for look in waiting)


def everybody_is(job: Job) -> str:
    """all 4 ranks are."""
    return some_are(len(job.looks), len(job.looks))


def some_are(count: int, of: int) -> str:
    """the only rank is, all 4 ranks are, 1 of 4 ranks is, 2 of 4 ranks are."""
    who = (
        "the only rank"
        if count == of == 1
        else f"all {of} ranks"
        if count == of
        else f"{count} of {of} ranks"
    )
    return f"{who} {'is' if count == 1 else 'are'}"
