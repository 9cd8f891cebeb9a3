"""Where one rank is, in words, and whether it is busy with something that takes long and ends.
Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.core.verdict.activities import (
    CODE,
    COLLECTIVE,
    EVALUATING,
    LOADING,
    LOCK,
    WAITS,
    activities,
)
from unhang.core.verdict.awaits import awaits_a_build, is_idle, wait_words
from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.ends import NEXT
from unhang.core.verdict.job import BYTES, COMPILES, IDLE, RankLook, Worker
from unhang.core.verdict.rendering import ranks_wait
from unhang.core.verdict.suspect import Suspect

BUSY_CORES = 0.2
# Of a process whose main thread sleeps: the threads of torch and NCCL. Chosen, not measured; it
# counts only beside a main thread that was never switched.
RESTING_CORES = 0.05
RUNNING_CORES = 0.5
# who waits in one of these waits for data, storage, or a child that may work on
SLOW_CALLS = ("read", "write", "fsync", "recv", "send", "connect", "flock", "lock", "wait")
COMPILING, WORKING = "compiling", "working"


def busy_word(look: RankLook | None) -> str | None:
    """What a rank is busy with, if it moves: compiling, saving, restoring, loading, evaluating,
    working; idle for a server without a request. None when it is not known to move."""
    if look is None or look.is_stopped or look.is_ended:
        return None
    if COMPILES in look.signs:
        return COMPILING
    if is_idle(look):
        return IDLE
    if look.doing is None:
        return WORKING if look.signs else None
    signs = {
        "cpu": _runs(look)
        or (look.cpu or 0) + sum(child.took_s for child in look.children) > BUSY_CORES,
        "data": look.has_io,
        "lines": bool(look.moved),
        "functions": bool(look.shifted),
        "workers": any(child.took_s > BUSY_CORES or child.is_new for child in look.children),
        "gpu": look.computes,
    }
    row = activities()[look.activity]
    if any(signs[name] for name in row.goes_on):
        return row.busy
    # who waits for the others may have workers that still fill their queues
    counts = BYTES if look.activity in WAITS else look.signs
    return row.busy or WORKING if any(sign in counts for sign in look.signs) else None


def is_at_rest(look: RankLook) -> bool:
    """Whether a rank slept without a break, and none of its threads and children did anything."""
    return (
        look.waited and not (busy_word(look) or look.log_grew) and (look.cpu or 0) < RESTING_CORES
    )


def may_work(look: RankLook | None) -> bool:
    """Whether a rank runs code of its own: work that takes long, or a loop that never ends, which
    looks the same. So does one that wakes up again and again in its own lines; a library wakes up
    for a wait too. And one to which data arrive in the background, unless it waits for others."""
    if look is None or look.activity in WAITS:
        return False
    if look.arrives or look.doing is None:
        return bool(look.arrives)
    if look.wakes and look.in_own_code and look.activity in (CODE, EVALUATING):
        return True
    return _runs(look) and not look.waited


def _runs(look: RankLook) -> bool:
    """By its processor time; on a crowded machine by both looks, because who polls may be met awake
    once."""
    return (look.cpu or 0) > RUNNING_CORES or (
        bool(look.states) and all(state == "R" for state in look.states)
    )


def stand_of(
    rank: int | None,
    look: RankLook | None,
    standing: Standing,
    waiting: Sequence[RankLook] = (),
) -> Suspect:
    """The rank that others wait for, as a suspect."""
    missed = _missed(rank, standing, waiting)
    if look is None:
        host = standing.places[rank or 0][0] if rank in standing.places else None
        then = f"look there too: unhang inspect --host {host}" if host else NEXT["others"]
        return Suspect(
            host,
            rank,
            None,
            COLLECTIVE,
            missed or "it is waited for, and its node was not looked at",
            then,
            blind=True,
        )
    why = f"it {stands_words(look)}" + (f"; {missed}" if missed else "")
    cause = activities()[look.activity].cause if look.doing else None
    if look.activity == LOCK and not awaits_a_build(look):
        cause = None  # another lock than that of an extension's build
    if look.activity == CODE and look.wait.call in SLOW_CALLS:
        cause = "slow_rank_or_io"
    return Suspect(look.host, rank, look.gpu, look.activity or "job", why, _next(look), cause=cause)


def _missed(rank: int | None, standing: Standing, waiting: Sequence[RankLook]) -> str:
    """never launched AllReduce 61, in which 7 ranks wait."""
    if rank in standing.missing or rank in standing.left:
        return (
            "NCCL's RAS has it in no communicator: it aborted or destroyed it, or does not answer"
        )
    for lag in standing.lags:
        if rank in lag.behind():
            count = len([one for one in lag.counts if lag.counts[one] == lag.highest])
            return (
                f"it never launched {lag.op} number {lag.highest} (its last is"
                f" {lag.counts[rank]}), in which {ranks_wait(count)}"
            )
    if waiting and waiting[0].doing:
        where = "the engine's queue" if waiting[0].awaits_engine else waiting[0].doing.where
        return f"{ranks_wait(len(waiting))} in {where}"
    return ""


def stands_words(look: RankLook) -> str:
    """sleeps in step (train.py:88) and waits in recv for 10.0.0.7:443."""
    state = f"is in state {look.state}" if look.states else "was not looked at in /proc"
    if look.state in "SIR":
        state = "runs" if _runs(look) else "sleeps"
    stuck = [child for child in look.children if child.state == "D"]
    below = (
        f"; {len(stuck)} of its workers hang in the kernel (state D, in {stuck[0].place})"
        if stuck
        else ""
    )
    if not stuck and (worker := worker_of(look)):
        item = f", at {worker.item}" if worker.item else ""
        below = f"; a worker is in {worker.where}, pid {worker.pid}{item}"
    if look.blocked:
        below += f"; {len(look.blocked)} of its threads hang in the kernel (in {look.blocked[0]})"
    where = f" in {look.where}" if look.where else f" (in {look.wchan})" if look.wchan else ""
    waits = wait_words(look)
    return f"{state}{where}{f' and {waits}' if waits else ''}{below}"


def _next(look: RankLook) -> str:
    if worker := worker_of(look):
        is_stuck = any(child.pid == worker.pid and child.state == "D" for child in look.children)
        return NEXT["children" if is_stuck else "worker"].format(pid=worker.pid, host=look.host)
    words = activities()[look.activity].next if look.doing else NEXT["spy"]
    return words.format(pid=look.pid, host=look.host)


def worker_of(look: RankLook) -> Worker | None:
    """The child for which a rank waits: one that hangs in the kernel, or one that loads its
    data."""
    for child in look.children:
        if child.state == "D" or (child.is_stopped and look.activity == LOADING):
            return Worker(child.pid, child.place, "")
    return look.worker if look.activity == LOADING else None


def place_of(look: RankLook) -> str | None:
    """The place in its code and for what it waits there; None where neither is known."""
    known = [look.where, wait_words(look)]
    return "; ".join(filter(None, known)) or None
