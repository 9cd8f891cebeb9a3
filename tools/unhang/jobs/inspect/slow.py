"""The slow rank of a job that runs, from the fifty looks of `inspect --slow`. Values in, values
out.

First the rank that its host keeps from launching, which RAS counts behind; then a GPU that the
driver slows down; then one that works while the others wait. Whatever one reading alone says is
not enough: a rank is blamed when a second one agrees.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from unhang.core.text import counted, visible
from unhang.core.verdict.job import EVEN, HUNG, SLOW, UNKNOWN, Verdict
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.suspect import Suspect
from unhang.jobs.inspect.inspection import JobLook, Pace, Paced
from unhang.jobs.inspect.rank_paces import Behind, Group, JobPace, RankPace
from unhang.jobs.inspect.slow_gpus import (
    OFTEN,
    SOMETIMES,
    is_oftener,
    moving,
    spread,
    throttled,
    working,
)

# phases of suspects
BEHIND, STARVED, THROTTLED, WORKS = "launching", "waking", "a slowdown", "computing"
FEWEST_LOOKS = 25
FEWEST_WAITS = 3  # and none of them half of all: a checkpoint or an evaluation is one
LESS_BUSY, LESS_CORES = 0.8, 0.5  # of the others' median
WITHOUT_CPU = 0.2  # share of the time in which a thread waits for a processor
NEXT = {
    STARVED: "give it processors of its own: its affinity, its cgroup, and what else runs there",
    "sleeps": "what its main thread waits for: data, a file system, a lock, a call to a server",
    "runs": "what its own code does between two steps: profile it (py-spy record)",
    THROTTLED: "the GPU's cooling and power supply: unhang audit on its node",
    "neighbour": "end that process, or give the rank a GPU of its own",
    WORKS: "its part of the batch, its sequence lengths, its layers; like work: unhang smoke there",
}


def with_pace(verdict: Verdict, job: JobLook) -> Verdict:
    """The verdict of the two looks, or that of the fifty where those were made and the job moved.
    A rank that ended, was stopped or hangs in the kernel stays the answer."""
    pace = job.pace
    if pace is None or any(
        look.is_ended or look.is_stopped or look.in_kernel for look in job.looks
    ):
        return verdict
    if len({*pace.ranks, *pace.hosts}) < 2:
        return Verdict(UNKNOWN, [], "fewer than 2 ranks were seen: none can be slower than another")
    if pace.answered < FEWEST_LOOKS:
        return _by_driver(pace) or _without_counts(pace, verdict)
    if not any(moving(pace)) and (pace.form != "json" or not pace.groups):
        why = (
            "RAS knows no communicator yet"
            if pace.form == "json"
            else "the RAS of this NCCL lists no rank while all are even"
        )
        return _by_driver(pace) or Verdict(UNKNOWN, [], f"{why}: who is slow is not known")
    if not any(moving(pace)):
        stands = f"no collective was launched in {pace.seconds:.0f} s, so no rank is slow: the job"
        stands += " hangs, or makes one long step"
        return replace(verdict, headline=f"{verdict.headline}; {stands}")
    return _with_strangers(_by_counts(pace) or _by_driver(pace) or _by_power(pace), pace)


def _without_counts(pace: JobPace, verdict: Verdict) -> Verdict:
    if verdict.state == HUNG:
        return verdict
    why = f"RAS answered {pace.answered} of {pace.looks} looks ({visible(pace.why, 200)})"
    return Verdict(UNKNOWN, [], f"{why}: which rank is behind is not known")


def _by_counts(pace: JobPace) -> Verdict | None:
    late = _late(pace)
    if len(late) > 1:
        looks = [row.looks for row in late.values()]
        return Verdict(
            UNKNOWN,
            [],
            f"ranks {fold_ranks(sorted(late))} are behind in {min(looks)} to {max(looks)} of"
            f" {pace.answered} looks: more than one, so none is reported",
        )
    if late:
        return _named_late(pace, *late.popitem())
    for group in moving(pace):
        counts = sorted((row.looks, rank) for rank, row in group.ranks.items())
        (next_, _), (most, rank) = [(0, 0), (0, 0), *counts][-2:]
        if most > SOMETIMES * pace.answered and is_oftener(most, next_):
            one = pace.ranks.get(rank)
            reason, kind = _why_late(one) if one else ("", "")
            why = f"; {reason}" if kind == STARVED else ""
            return Verdict(
                UNKNOWN,
                [],
                f"rank {rank} is behind in {most} of {pace.answered} looks, too few to name"
                f" it{why}: look again",
            )
    return None


def _late(pace: JobPace) -> dict[int, Behind]:
    """Ranks that are behind in most looks, and those of their communicator that are half as often.
    One that waits for such a rank in another communicator comes late there by its fault."""
    found: dict[int, Behind] = {}
    groups = [group for group in moving(pace) if group.missing <= SOMETIMES * pace.answered]
    for group in groups:
        unseen = [0] * (group.size - len(group.ranks))
        looks = [row.looks for row in group.ranks.values()] + unseen
        top, is_uneven = max(looks), is_oftener(max(looks), min(looks))
        for rank, row in group.ranks.items() if is_uneven and top >= OFTEN * pace.answered else ():
            if 2 * row.looks > top and (rank not in found or found[rank].looks < row.looks):
                found[rank] = row

    def waits_itself(rank: int) -> bool:
        return any(
            other != rank
            and rank in group.ranks
            and other in group.ranks
            and _is_ahead(group, rank, other, pace)
            for group in groups
            for other in found
        )

    return {rank: row for rank, row in found.items() if not waits_itself(rank)}


def _is_ahead(group: Group, rank: int, other: int, pace: JobPace) -> bool:
    often = OFTEN * pace.answered
    return group.ranks[rank].looks < often / 2 and group.ranks[other].looks >= often


def _named_late(pace: JobPace, rank: int, row: Behind) -> Verdict:
    one, others = pace.ranks.get(rank), [pace.ranks[key] for key in pace.ranks if key != rank]
    who = _who(rank, one, pace)
    says = f"is behind in {row.looks} of {pace.answered} looks"
    if row.waits < FEWEST_WAITS or 2 * row.longest > row.looks:
        took = row.longest * pace.seconds / max(1, pace.looks)
        return Verdict(
            UNKNOWN,
            [],
            f"{who} {says}, but most of them are one wait of {took:.0f} s: a checkpoint, an"
            " evaluation or one stall, not a slow rank; look again",
        )
    if one is None:
        more = "; its node was not looked at"
        return _named(rank, None, pace, BEHIND, says, "look there too", UNKNOWN, more)
    signs = [
        value <= share * usual
        for name, share in (("busy", LESS_BUSY), ("cores", LESS_CORES))
        if (value := getattr(one, name)) is not None
        and (usual := _median(others, name)) is not None
    ]
    seen = "; ".join([says, *([_host_words(one)] if _host_words(one) else [])])
    why, kind = _why_late(one)
    phase, then = STARVED if kind == STARVED else BEHIND, NEXT[kind]
    if not any(signs):
        reason = (
            "its GPU and processor are as busy as the others'"
            if signs
            else ("neither its GPU nor its processor time was read")
        )
        more = ", so it may not be slow"
        return _named(rank, one, pace, phase, f"{seen}; {reason}", then, UNKNOWN, more)
    return _named(rank, one, pace, phase, f"{seen}; {why}", then)


def _host_words(one: RankPace) -> str:
    words = []
    if one.busy is not None:
        words.append(f"its GPU is busy {one.busy:.0f} % of the time")
    if one.cores is not None:
        words.append(f"its process ran {one.cores:.2g} of a core")
    return ", ".join(words)


def _why_late(one: RankPace) -> tuple[str, str]:
    """(what keeps it from launching, the row of NEXT)."""
    if one.run_queue is not None and one.run_queue >= WITHOUT_CPU:
        return (
            f"it waits for a processor {one.run_queue:.0%} of the time".replace("%", " %"),
            STARVED,
        )
    doing = one.look.doing if one.look else None
    where = f"{doing.name} in {doing.where}" if doing else "its stack was not read"
    if one.cores is not None and one.cores < LESS_CORES:
        return f"it sleeps or reads: {where}", "sleeps"
    return f"it runs code of its own: {where}", "runs"


def _by_driver(pace: JobPace) -> Verdict | None:
    return _together([
        _named(
            one.rank, one, pace, THROTTLED,
            f"has a GPU that is slowed down ({', '.join(reasons)}): {one.clock_mhz:.0f} MHz, the"
            f" others {usual:.0f} MHz",
            NEXT[THROTTLED],
        )
        for one, usual, reasons in throttled(pace)
    ])  # fmt: skip


def _by_power(pace: JobPace) -> Verdict:
    found, not_compared = working(pace)
    named = _together([
        _named(
            one.rank, one, pace, WORKS,
            f"works while the others wait: {one.power_w:.0f} W against {other.power_w:.0f} W",
            NEXT["neighbour" if one.neighbours else WORKS],
        )
        for one, other in found
    ])  # fmt: skip
    if named:
        return named
    numbers = _numbers(pace)
    if not_compared:
        return Verdict(
            UNKNOWN,
            [],
            f"nobody is behind: {numbers}; whether a GPU keeps the others waiting is not known:"
            f" {'; '.join(not_compared)}",
        )
    unseen = set(pace.hosts) - set(pace.ranks)
    if unseen:
        return Verdict(
            UNKNOWN,
            [],
            f"nobody is behind, and no GPU seen stands out: {numbers}; the GPUs of ranks"
            f" {fold_ranks(sorted(unseen))[:60]} were not looked at",
        )
    return Verdict(EVEN, [], f"nobody is slow: {numbers}")


def _with_strangers(verdict: Verdict, pace: JobPace) -> Verdict:
    """With the processes of others on the ranks' GPUs, and what they cost."""
    for one in pace.ranks.values():
        if one.neighbours:
            others = [other for other in pace.ranks.values() if other is not one]
            costs = [
                f"{own:.0f} {unit} against {usual:.0f} {unit}"
                for name, unit in (("power_w", "W"), ("clock_mhz", "MHz"))
                if (own := getattr(one, name)) and (usual := _median(others, name))
            ]
            near = f"on the GPU of rank {one.rank} also {visible(', '.join(one.neighbours), 200)}"
            near += f", not of this job: {', '.join(costs) or 'its power was not read'}"
            named = [
                replace(own, why=f"{own.why}; {near}") if own.rank == one.rank else own
                for own in verdict.named
            ]
            verdict = replace(verdict, named=named, headline=f"{verdict.headline}; {near}")
    return verdict


def _numbers(pace: JobPace) -> str:
    most = max((row.looks for group in moving(pace) for row in group.ranks.values()), default=0)
    words = [
        f"{counted(len({*pace.ranks, *pace.hosts}), 'rank')}, each behind in at most {most} of"
        f" {pace.answered} looks"
    ]
    for name, unit in (("power_w", "W"), ("clock_mhz", "MHz"), ("busy", "% busy")):
        found = spread(pace.ranks, name)
        if found:
            words.append(f"{' to '.join(dict.fromkeys(f'{one:.0f}' for one in found))} {unit}")
    return ", ".join(words)


def _who(rank: int, one: RankPace | None, pace: JobPace) -> str:
    host = visible(one.host if one else pace.hosts.get(rank, "?"), 80)
    return f"rank {rank} ({f'{host}, {one.gpu}' if one and one.gpu else host})"


def _named(
    rank: int,
    one: RankPace | None,
    pace: JobPace,
    phase: str,
    says: str,
    then: str,
    state: str = SLOW,
    more: str = "",
) -> Verdict:
    """says: of the rank; more: of the job alone."""
    host, gpu = (one.host, one.gpu) if one else (pace.hosts.get(rank), None)
    named = Suspect(host, rank, gpu, phase, f"it {says}", then, state == UNKNOWN)
    return Verdict(state, [named], f"{_who(rank, one, pace)} {says}{more}")


def _together(found: Sequence[Verdict]) -> Verdict | None:
    if not found:
        return None
    headline = "; ".join(one.headline for one in found[:3])
    return Verdict(SLOW, [one.named[0] for one in found], headline)


def _median(ranks: list[RankPace], name: str) -> float | None:
    values = [value for one in ranks if (value := getattr(one, name)) is not None]
    return statistics.median(values) if values else None


def pace_row(job: JobLook) -> Pace | None:
    """The numbers, for `unhang/inspection/1`."""
    pace = job.pace
    if pace is None:
        return None
    ranks = [_rank_row(pace, rank) for rank in sorted({*pace.ranks, *pace.hosts})]
    return Pace(pace.seconds, pace.looks, pace.answered, any(moving(pace)), ranks)


def _rank_row(pace: JobPace, rank: int) -> Paced:
    one = pace.ranks.get(rank) or RankPace(rank, pace.hosts[rank], None, 0)
    behind = [group.ranks[rank].looks for group in moving(pace) if rank in group.ranks]
    return Paced(
        rank, one.host, one.gpu, max(behind, default=None), one.power_w, one.clock_mhz, one.busy,
        one.memory, one.cores, one.run_queue, sorted(one.throttle),
    )  # fmt: skip
