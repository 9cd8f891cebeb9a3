"""Evidence of a job's nodes -> `unhang/inspection/1`: whether it hangs, who is waited for, where that rank stands, and what to do. Values in, values out.

Certain evidence comes first, as in the smoke test and by its code: a process that is gone, stopped, or hangs in the kernel; then the rank that never entered
the operation in which others wait; then ranks in different operations; then all in the same one. Work that moves on (compiling, loading, saving) is no hang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.text import counted
from unhang.core.verdict.likely_causes import with_likely
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.suspects import Suspect, ranks_wait
from unhang.jobs.inspect.activities import BACKWARD, COLLECTIVE, STARTING
from unhang.jobs.inspect.agreement import gpus_idle, sources_of
from unhang.jobs.inspect.communicators import Standing, standing_of
from unhang.jobs.inspect.ends import NEXT, Named, clues, ended_ranks, never_came, silent_ranks, split_ranks, stopped_or_stuck
from unhang.jobs.inspect.flights import with_recorded
from unhang.jobs.inspect.rank_looks import LEAST_BYTES_S, RankLook, host_of, number_of, rank_looks, rows, section
from unhang.jobs.inspect.stands import busy_word, runs_python, stand_of, standing_row
from unhang.jobs.inspect.unread import unread_rows

SCHEMA = "unhang/inspection/1"
HUNG, RUNNING, UNKNOWN = "hung", "running", "unknown"
LONG_OR_ENDLESS = "it runs Python code, work that takes long or a loop that never ends: look again in a minute"
BUSY_PERCENT = 95


def inspection_of(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document. documents: evidence of the nodes of one job."""
    looks = rank_looks(documents)
    standing = standing_of(documents, looks)
    state, named, headline = _judge(documents, looks, standing)
    if state in (HUNG, UNKNOWN) and looks:
        named, headline = with_recorded(named, headline, documents)
    suspects = _with_clues(documents, [one.suspect for one in named])
    causes = [one.cause for one in named]
    return {
        "schema": SCHEMA,
        "state": state,
        "headline": headline,
        "world_size": _world_size(looks, standing),
        "hosts": [_host_row(document) for document in documents],
        "suspects": [{**suspect.as_dict(), "cause": cause} for suspect, cause in zip(suspects, causes, strict=True)],
        "ranks": [standing_row(look, standing) for look in looks],
        "ras": _ras_row(standing),
        "sources": sources_of(documents, looks, standing),
        "unread": unread_rows(documents, looks, standing),
    }


def _world_size(looks: Sequence[RankLook], standing: Standing | None) -> int | None:
    named = max((look.world_size for look in looks if look.world_size), default=None)
    return named or (standing.world_size if standing else None) or len(looks) or None


def _host_row(document: Mapping[str, Any]) -> dict[str, Any]:
    probe = section(document, "ranks").get("probe")
    status = probe if isinstance(probe, Mapping) else {}
    return {"host": host_of(document), "ranks": len(rows(document.get("ranks"))), "problem": status.get("error") if status.get("status") != "ok" else None}


def _ras_row(standing: Standing | None) -> dict[str, Any] | None:
    if standing is None:
        return None
    lags = [{"op": lag.op, "highest": lag.highest, "behind": sorted(lag.behind())} for lag in standing.lags[:64]]
    return {"version": standing.version, "moved": standing.moved, "ranks": len(standing.ranks), "missing": sorted(standing.missing), "lags": lags}


def _with_clues(documents: Sequence[Mapping[str, Any]], suspects: Sequence[Suspect]) -> list[Suspect]:
    """With what the kernel logs of their nodes say, by the smoke test's code."""
    return with_likely(suspects, [{"host": host_of(document), "kernel_log": clues(document)} for document in documents], [])


def _judge(documents: Sequence[Mapping[str, Any]], looks: Sequence[RankLook], standing: Standing | None) -> tuple[str, list[Named], str]:
    """(state, suspects, one sentence)."""
    if not looks:
        return UNKNOWN, [], "no rank was found"
    if all(look.is_ended for look in looks):
        return UNKNOWN, [], "the job has ended, none of its processes is left; unhang diagnose LOG says why"
    ended, stuck = ended_ranks(looks, standing), stopped_or_stuck(looks, standing)
    words = {busy_word(look) for look in looks if not look.is_ended}
    if ended and not stuck and len(words) == 1 and None not in words:
        return str(*words), [], f"{_who(ended, looks)}, but the ranks that are left are {str(*words)}"
    if ended or stuck:
        return HUNG, [*ended, *stuck], _who([*ended, *stuck], looks)
    if standing and standing.moved:
        return RUNNING, [], _running(standing)
    if standing and (standing.missing or standing.lags) and any(look.log_grew for look in looks):
        return RUNNING, [], "its log grew between the two looks, although RAS counts no new collective"
    if standing and standing.missing:
        silent = silent_ranks(looks, standing)
        is_sure = standing.moved is False and not standing.missing.keys() <= {look.rank for look in looks if look.states}
        return HUNG if is_sure else UNKNOWN, silent, _who(silent, looks)
    if standing and standing.roots:
        return _waited_for(looks, standing)
    if standing and standing.is_split:
        named = split_ranks(looks, standing)
        return HUNG, named, "ranks wait for each other in different operations: " + "; ".join(one.suspect.why for one in named[:2])
    return _by_stacks(documents, looks, standing)


def _who(named: Sequence[Named], looks: Sequence[RankLook]) -> str:
    first = named[0].suspect
    who = f"rank {first.rank}" if first.rank is not None else "the job"
    more = f", and {counted(len(named) - 1, 'more rank')}" if len(named) > 1 else ""
    return f"{who}{f' on {first.host}' if first.host else ''}: {first.why}{more}"


def _running(standing: Standing) -> str:
    slow = standing.roots
    behind = f"; rank {fold_ranks(slow)} comes last" if slow else ""
    return f"collectives were launched between the two looks{behind}"


def _waited_for(looks: Sequence[RankLook], standing: Standing) -> tuple[str, list[Named], str]:
    """Ranks that RAS says are behind in both looks."""
    by_rank = {look.rank: look for look in looks}
    busy = [(rank, word) for rank in standing.roots for word in [busy_word(by_rank.get(rank))] if word]
    if len(busy) == len(standing.roots):
        rank, word = busy[0]
        look = by_rank[rank]
        where = f" in {look.doing.where}" if look.doing else ""
        ahead = {rank for lag in standing.lags for rank in lag.ahead()}
        return word, [], f"rank {fold_ranks([one for one, _ in busy])} is {word}{where}, {ranks_wait(len(ahead))} for it"
    named = [stand_of(rank, by_rank.get(rank), standing) for rank in standing.roots if not busy_word(by_rank.get(rank))]
    if not any(look and (look.doing or look.waited) for look in map(by_rank.get, standing.roots)):
        return UNKNOWN, named, f"{_who(named, looks)}; whether it is busy or stuck only its stack tells"
    if all(runs_python(by_rank.get(one.suspect.rank)) for one in named if one.suspect.rank is not None):
        return UNKNOWN, named, f"{_who(named, looks)}; {LONG_OR_ENDLESS}"
    return HUNG, named, _who(named, looks)


def _by_stacks(documents: Sequence[Mapping[str, Any]], looks: Sequence[RankLook], standing: Standing | None) -> tuple[str, list[Named], str]:
    """RAS does not tell them apart, or did not answer."""
    came = never_came(documents, looks, standing)
    if came:
        return STARTING, came, came[0].suspect.why
    waiting = [look for look in looks if _waits(look)]
    others = [look for look in looks if look.doing and look not in waiting]
    if waiting and others and not standing:
        return _others_stand(documents, looks, waiting, others)
    busy = {word for look in looks for word in [busy_word(look)] if word}
    if busy and not waiting:
        word = sorted(busy)[0]
        return word, [], f"{_some_are(sum(busy_word(look) == word for look in looks), len(looks))} {word}"
    if waiting and all(look.computes for look in looks):
        return RUNNING, [], f"{_some_are(len(looks), len(looks))} waiting for GPUs that compute: a long step"
    if len(waiting) == len(looks) and not any(look.moved for look in looks):
        return _all_in(documents, looks, waiting)
    in_same_place = {look.doing.where if look.doing else None for look in looks}
    if len(in_same_place) == 1 and None not in in_same_place and not any(look.moved for look in looks) and _gpus_spin(documents):
        return _all_in(documents, looks, looks)
    if any(look.moved for look in looks):
        return RUNNING, [], "the ranks' stacks moved between the two looks"
    if any(look.log_grew for look in looks):
        return RUNNING, [], "its log grew between the two looks"
    if any((look.read_s or 0) + (look.written_s or 0) >= LEAST_BYTES_S for look in looks):
        return RUNNING, [], "it reads or writes files"
    if standing and not any(look.doing for look in looks):
        return UNKNOWN, [], "RAS counts the same for all ranks: a long step, or a path that is dead; stacks and the driver would tell"
    if not any(look.doing for look in looks):
        return _by_proc(looks)
    if all(runs_python(look) for look in looks):
        return UNKNOWN, [], LONG_OR_ENDLESS
    spy = "" if all(look.doing for look in looks) else ", or with py-spy"
    return UNKNOWN, [], f"the looks do not tell whether it moves; look again with a longer --gap{spy}"


def _waits(look: RankLook) -> bool:
    """Whether a rank waits for others: in a collective, or asleep in the backward pass, which awaits the gradients of all."""
    return look.doing is not None and (look.doing.name in (COLLECTIVE, STARTING) or (look.doing.name == BACKWARD and look.waited))


def _others_stand(
    documents: Sequence[Mapping[str, Any]], looks: Sequence[RankLook], waiting: Sequence[RankLook], others: Sequence[RankLook]
) -> tuple[str, list[Named], str]:
    busy = [(look, word) for look in others for word in [busy_word(look)] if word]
    if any(look.moved for look in waiting):
        return RUNNING, [], "the ranks' stacks moved between the two looks"
    if len(busy) == len(others):
        look, word = busy[0]
        where = f" in {look.doing.where}" if look.doing else ""
        return word, [], f"rank {fold_ranks([one.rank or 0 for one, _ in busy])} is {word}{where}, {ranks_wait(len(waiting))} for it"
    named = [stand_of(look.rank, look, None, waiting) for look in others if not busy_word(look)]
    if not _quiet(documents, waiting):
        return UNKNOWN, named, f"{_who(named, looks)}; whether it moves cannot be told without RAS: look again with a longer --gap"
    if all(runs_python(look) for look in others if not busy_word(look)):
        return UNKNOWN, named, f"{_who(named, looks)}; {LONG_OR_ENDLESS}"
    return HUNG, named, _who(named, looks)


def _all_in(documents: Sequence[Mapping[str, Any]], looks: Sequence[RankLook], waiting: Sequence[RankLook]) -> tuple[str, list[Named], str]:
    functions = {look.doing.function for look in waiting if look.doing}
    seen = {look.rank for look in looks}
    world = max((look.world_size or 0 for look in looks), default=0)
    if len(functions) > 1 and not {"synchronize"} & functions:
        named = [stand_of(look.rank, look, None, []) for look in _minority(waiting)]
        sides = "; ".join(
            f"{name}: rank {fold_ranks([look.rank or 0 for look in waiting if look.doing and look.doing.function == name])}" for name in sorted(functions)
        )
        return HUNG, [Named(one.suspect, "rank_desync_app") for one in named], f"ranks wait in different operations: {sides}"
    where = waiting[0].doing.where if waiting[0].doing else "a collective"
    if len(seen) < world:
        return UNKNOWN, [], f"only {len(seen)} of {world} ranks could be looked at, waiting in {where}; look at the other nodes too (--hosts, --slurm-job)"
    if not _quiet(documents, waiting) or not gpus_idle(documents):
        return UNKNOWN, [], f"{_some_are(len(looks), len(looks))} in {where} and something still moves: a long step, or traffic; look again with a longer --gap"
    why = f"{_some_are(len(looks), len(looks))} in {where}, none left it between the looks and the links are idle: what lies between them does not carry it"
    suspect = Suspect(None, None, None, COLLECTIVE, why, NEXT["path"])
    return HUNG, [Named(suspect, None)], why


def _minority(waiting: Sequence[RankLook]) -> list[RankLook]:
    sides: dict[str, list[RankLook]] = {}
    for look in waiting:
        sides.setdefault(look.doing.function if look.doing else "", []).append(look)
    largest = max(map(len, sides.values()))
    usual = [name for name, side in sides.items() if len(side) == largest]
    return [look for name, side in sides.items() if len(usual) > 1 or name != usual[0] for look in side]


def _quiet(documents: Sequence[Mapping[str, Any]], waiting: Sequence[RankLook]) -> bool:
    """Whether those who wait did so without a break: asleep all the time, or before a GPU that moves no memory."""
    on_gpus = any(rows(section(document, "nvml").get("gpus_2")) for document in documents)
    return any(look.waited for look in waiting) or (on_gpus and gpus_idle(documents))


def _gpus_spin(documents: Sequence[Mapping[str, Any]]) -> bool:
    """Every GPU of the job is busy in both looks and moves no memory: what NCCL's waiting kernel looks like."""
    looks = [rows(section(document, "nvml").get(f"gpus_{number}")) for document in documents for number in (1, 2)]
    used = [gpu for look in looks for gpu in look if gpu.get("processes")]
    return bool(used) and all(number_of(gpu.get("utilization_percent")) >= BUSY_PERCENT and gpu.get("memory_activity_percent") == 0 for gpu in used)


def _some_are(count: int, of: int) -> str:
    """the only rank is, all 4 ranks are, 1 of 4 ranks is, 2 of 4 ranks are."""
    who = "the only rank" if count == of == 1 else f"all {of} ranks" if count == of else f"{count} of {of} ranks"
    return f"{who} {'is' if count == 1 else 'are'}"


def _by_proc(looks: Sequence[RankLook]) -> tuple[str, list[Named], str]:
    """Neither RAS nor stacks: a rank that alone sleeps while the others spin, as ranks do that wait for a GPU. A hint, no more."""
    busy = [look for look in looks if (look.cpu or 0) > 0.5]
    asleep = [look for look in looks if look.cpu is not None and look.cpu < 0.05 and look.waited]
    if busy and len(asleep) == 1 and len(busy) + 1 == len(looks) and not asleep[0].log_grew:
        look = asleep[0]
        spin = "1 rank spins" if len(busy) == 1 else f"{len(busy)} ranks spin"
        why = f"it alone sleeps (in {look.wchan or 'the kernel'}) while {spin}, as ranks do that wait for a GPU; a hint, no proof"
        return (
            UNKNOWN,
            [Named(Suspect(look.host, look.rank, look.gpu, "asleep", why, NEXT["spy"].format(pid=look.pid), True), None)],
            f"rank {look.rank}: {why}",
        )
    return UNKNOWN, [], "neither RAS nor stacks could be read; what /proc and the driver say does not tell the ranks apart"
