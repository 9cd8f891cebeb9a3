"""All ranks of a job wait: in different operations, or in the same one that none leaves. Values in,
values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.suspect import Suspect
from unhang.jobs.activities import COLLECTIVE
from unhang.jobs.inspect.agreement import gpus_move
from unhang.jobs.inspect.ends import NEXT
from unhang.jobs.inspect.job_look import HUNG, UNKNOWN, JobLook, Verdict
from unhang.jobs.inspect.rank_looks import RankLook
from unhang.jobs.inspect.stands import stand_of

POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list",
                  "recv_object_list"}  # fmt: skip
ORDER = "an order of calls (who sends to whom and receives from whom, and which comes first)"
GROUPS = "groups that share ranks and call in unlike order"
KERNEL = "a kernel of one rank that never ends"
PATH = "what lies between them does not carry it"


def all_in(job: JobLook, waiting: Sequence[RankLook]) -> Verdict:
    """The verdict on a job of which all ranks wait."""
    functions = {look.doing.function for look in waiting if look.doing}
    seen = {look.rank for look in job.looks}
    world = max((look.world_size or 0 for look in job.looks), default=0)
    is_paired = bool(functions) and functions <= POINT_TO_POINT
    if len(functions) > 1 and not {"synchronize"} & functions and not is_paired:
        named = [stand_of(look.rank, look, job.standing) for look in _minority(waiting)]
        sides = "; ".join(
            f"{name}: rank"
            f" {fold_ranks([look.rank or 0 for look in waiting if look.doing and look.doing.function == name])}"  # noqa: E501
            for name in sorted(functions)
        )
        few = [one.rank or 0 for one in named]
        apart = f"; rank {fold_ranks(few)} went another way" if 2 * len(few) < len(waiting) else ""
        return Verdict(
            HUNG,
            [replace(one, cause="rank_desync_app") for one in named],
            f"ranks wait in different operations: {sides}{apart}",
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
    if gpus_move(job) is None:
        return Verdict(
            UNKNOWN,
            [],
            f"{everybody}, and others have memory on their GPUs: `nvidia-smi pmon -c 5` shows whose"
            " processes compute",
        )
    if not is_quiet(job, waiting) or gpus_move(job):
        return Verdict(
            UNKNOWN,
            [],
            f"{everybody} and something still moves: a long step, or traffic; look again with a"
            " longer --gap",
        )
    if world <= 1 and not any(look.activity == COLLECTIVE for look in waiting):
        return Verdict(UNKNOWN, [], f"{everybody}, and no other rank waits for it")
    ways = _what_it_may_be(job, waiting)
    why = f"{everybody}, none left it between the looks and the links are idle: {' or '.join(ways)}"
    suspect = Suspect(None, None, None, COLLECTIVE, why, _next(job, ways))
    return Verdict(HUNG, [suspect], why)


def _where(waiting: Sequence[RankLook]) -> str:
    """all_reduce, called by step (train.py:88); of several places each with its ranks."""
    places: dict[str, list[int]] = {}
    for look in waiting:
        places.setdefault(look.where or "?", []).append(look.rank or 0)
    if len(places) == 1:
        return next(iter(places))
    shown = [f"{where} (rank {fold_ranks(ranks)})" for where, ranks in list(places.items())[:4]]
    return " and ".join([*shown, *(["other places"] if len(places) > 4 else [])])


def _what_it_may_be(job: JobLook, waiting: Sequence[RankLook]) -> list[str]:
    """What holds all ranks in one wait: the path between them alone only where the operation in
    which they wait is seen and pairs nobody."""
    doing = [look.doing for look in waiting if look.doing]
    ways = []
    if any(one.function in POINT_TO_POINT for one in doing):
        ways.append(ORDER)
    # also where it is no call that names an operation: who waits for a GPU does not say for what
    if any(one.awaits_gpu or one.name != COLLECTIVE for one in doing):
        ways += [f"{ORDER}, or of groups that share ranks", KERNEL]
    elif job.standing.sharing or len({one.user for one in doing}) > 1:
        ways.append(GROUPS)
    return [*dict.fromkeys(ways), PATH]


def _next(job: JobLook, ways: Sequence[str]) -> str:
    hosts = {look.host for look in job.looks}
    if ways == [PATH] and len(hosts) > 1:
        return NEXT["path"]
    return NEXT["order"] + (f"; then {NEXT['path']}" if len(hosts) > 1 else "")


def _minority(waiting: Sequence[RankLook]) -> list[RankLook]:
    """Those who left the others in the oldest line of the user's code that is not the same in all.
    The operations alone do not tell: the root of a broadcast is ahead of those that it sends to."""
    sides: dict[str, list[RankLook]] = {}
    functions = [look.doing.function if look.doing else "" for look in waiting]
    steps = zip(*(look.path for look in waiting), strict=False)  # as far as the shortest goes
    parting = next((places for places in steps if len(set(places)) > 1), functions)
    for look, side in zip(waiting, parting, strict=True):
        sides.setdefault(side, []).append(look)
    largest = max(map(len, sides.values()))
    usual = [name for name, side in sides.items() if len(side) == largest]
    return [
        look for name, side in sides.items() if len(usual) > 1 or name != usual[0] for look in side
    ]


def is_quiet(job: JobLook, waiting: Sequence[RankLook]) -> bool:
    """Whether those who wait did so without a break: asleep all the time, or before a GPU that
    moves no memory."""
    on_gpus = any(node.has_gpus for node in job.nodes)
    return any(look.waited for look in waiting) or (on_gpus and gpus_move(job) is False)


def everybody_is(job: JobLook) -> str:
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
