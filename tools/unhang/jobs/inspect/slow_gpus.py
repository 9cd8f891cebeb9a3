"""Which GPU makes the other ranks wait, in a job whose hosts are even: a GPU that the driver slows
down, or one that works while the others spin in NCCL's kernel. Values in, values out.

A GPU that waits in a collective shows 100 % utilisation as one that computes does; it draws less
power, moves less memory, and keeps a higher clock (measured on two H200: docs/benchmarks.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from unhang.jobs.inspect.rank_paces import Group, JobPace, RankPace

# all GPUs of a node may be slowed down so, and none is slower than its peers
HOT = ("sw_thermal", "hw_thermal", "hw_power_brake", "hw_slowdown")
# of the peers' clock: those of a job that draws all the power it may lie within 0.88 of each other
APART = 0.85
OFTEN = 0.6  # share of the looks
SOMETIMES = 0.2  # a rank that is behind so often keeps the others waiting by itself
# as the smoke test's stragglers, here against the others alone, so that two ranks have an answer:
# 6 deviations of at least 3 % are 1.27 of the others' median; healthy pairs lay within 1.01
STANDS_OUT, SCALE_OF_MAD, LEAST_SPREAD = 6.0, 1.4826, 0.03
WAITING_BUSY = 50.0  # percent: who waits in NCCL's kernel is busy
MORE_MEMORY, LOWER_CLOCK = 1.3, 0.95


def throttled(pace: JobPace) -> Iterator[tuple[RankPace, float, list[str]]]:
    """(rank, the others' median clock in MHz, reasons) of GPUs whose clock lies far below that of
    like ones, with a reason that is a fault: the power cap is none."""
    for one in pace.ranks.values():
        reasons = [name for name in HOT if one.throttle.get(name, 0.0) >= OFTEN]
        peers = [
            other.clock_mhz
            for other in pace.ranks.values()
            if (other.host, other.gpu) != (one.host, one.gpu) and other.card == one.card
        ]
        clocks = [clock for clock in peers if clock]
        if reasons and one.clock_mhz and clocks:
            usual = statistics.median(clocks)
            if one.clock_mhz < APART * usual:
                yield (one, usual, reasons)


def working(pace: JobPace) -> tuple[list[tuple[RankPace, RankPace]], list[str]]:
    """([(rank that works, one that waits, the middle of the others)], why some were not compared).
    Each rank is compared in the communicator alone that it uses most."""
    found, why, seen = [], [], set[int]()
    for group in moving(pace):
        ranks = [
            pace.ranks[rank] for rank in group.ranks if rank in pace.ranks and rank not in seen
        ]
        seen |= set(group.ranks)
        if len(ranks) < 2:
            continue
        reason = _not_compared(pace, group, ranks)
        if reason:
            why.append(reason)
        else:
            found += list(_outliers(ranks))
    return found, list(dict.fromkeys(why))


def moving(pace: JobPace) -> Iterator[Group]:
    """The communicators that launched collectives in those looks, the busiest first."""
    return (group for group in pace.groups if group.launched > 0)


def _not_compared(pace: JobPace, group: Group, ranks: Sequence[RankPace]) -> str:
    if any(one.power_w is None or one.busy is None for one in ranks):
        return "power or utilisation was not read"
    if group.missing > SOMETIMES * pace.answered:
        return "a rank did not answer RAS"
    if not all(one.alone for one in ranks):
        return "ranks share a GPU"
    if len({one.card for one in ranks}) > 1:
        return "the GPUs are of unlike models"
    looks = [row.looks for row in group.ranks.values()]
    if max(looks) >= SOMETIMES * pace.answered and is_oftener(max(looks), min(looks)):
        return "a rank is behind at times"
    largest = max(other.size for other in pace.groups)
    stages = (
        other
        for other in pace.groups
        if not other.total and other.size < largest and len(set(other.ranks) & set(group.ranks)) > 1
    )
    return "they send to each other as stages of a pipeline do" if any(stages) else ""


def is_oftener(one: int, other: int) -> bool:
    """Whether two counts of looks differ by more than chance: 22 and 21 of 50 are even."""
    return one - other > 2 * math.sqrt(one + other)


def _outliers(ranks: Sequence[RankPace]) -> Iterator[tuple[RankPace, RankPace]]:
    for one in ranks:
        others = sorted((other for other in ranks if other is not one), key=_power)
        usual = statistics.median(map(_power, others))
        mad = statistics.median(abs(_power(other) - usual) for other in others)
        limit = usual + STANDS_OUT * SCALE_OF_MAD * max(mad, LEAST_SPREAD * usual)
        other = others[(len(others) - 1) // 2]
        if _power(one) > limit and (other.busy or 0.0) >= WAITING_BUSY and _works(one, other):
            yield one, other


def _power(one: RankPace) -> float:
    return one.power_w or 0.0


def _works(one: RankPace, other: RankPace) -> bool:
    """Whether a second reading says so as well: power alone may be a sensor's fault."""
    more = one.memory is not None and one.memory > MORE_MEMORY * (other.memory or 0.0)
    lower = bool(
        one.clock_mhz and other.clock_mhz and one.clock_mhz < LOWER_CLOCK * other.clock_mhz
    )
    return more or lower


def spread(ranks: Mapping[int, RankPace], name: str) -> tuple[float, float] | None:
    """The least and the most of a value over the ranks, None where none was read."""
    values = [value for one in ranks.values() if (value := getattr(one, name)) is not None]
    return (min(values), max(values)) if values else None
