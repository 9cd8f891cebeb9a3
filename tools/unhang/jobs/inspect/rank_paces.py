"""The fifty looks of `inspect --slow` as values: a row for each rank, and the communicators in
which ranks may be compared. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from unhang.core.verdict.job import RankLook
from unhang.jobs.inspect.evidence import (
    Card,
    NodeEvidence,
    PaceSection,
    UsedRow,
)
from unhang.jobs.inspect.ras_of_job import global_ranks


@dataclass(frozen=True)
class RankPace:
    """One rank in those ten seconds. cores: that its process used; run_queue: share of the time in
    which its main thread was runnable without a processor; the GPU's values are medians, None where
    the driver did not say; throttle: {reason: share of the looks}; alone: no other rank is on the
    GPU; neighbours: processes on it that are none of the job."""

    rank: int
    host: str
    gpu: str | None
    pid: int
    cores: float | None = None
    run_queue: float | None = None
    card: str | None = None
    power_w: float | None = None
    clock_mhz: float | None = None
    busy: float | None = None
    memory: float | None = None
    throttle: Mapping[str, float] = field(default_factory=dict)
    alone: bool = True
    neighbours: tuple[str, ...] = ()
    look: RankLook | None = None


@dataclass(frozen=True)
class Behind:
    """looks in which a rank was behind; waits: at how many counts of its own; longest: looks of the
    longest of them."""

    looks: int
    waits: int
    longest: int


@dataclass(frozen=True)
class Group:
    """A communicator. launched: operations of its most advanced rank in those ten seconds; total:
    since it began; missing: looks in which one of its ranks did not answer."""

    size: int
    launched: int
    total: int
    missing: int
    ranks: Mapping[int, Behind]


@dataclass(frozen=True)
class JobPace:
    """answered: looks of RAS, of those that were made in so many seconds; why: there are no more;
    form: json or text; hosts: where each rank is that RAS knows; groups: the busiest first."""

    looks: int
    answered: int
    seconds: float
    why: str
    form: str
    groups: Sequence[Group]
    ranks: Mapping[int, RankPace]
    hosts: Mapping[int, str]


def job_pace(nodes: Sequence[NodeEvidence], looks: Sequence[RankLook]) -> JobPace | None:
    """None where no node was asked for it."""
    asked = [(node, node.pace) for node in nodes if node.pace]
    if not asked:
        return None
    ranks = {one.rank: one for node, pace in asked for one in _ranks(node.host, pace, looks)}
    best, pace = max(asked, key=lambda one: one[1].answered)
    own = [look for look in looks if look.host == best.host]
    members = [
        {"size": row.size, "members": [list(one[:4]) for one in row.ranks]}
        for row in pace.communicators
    ]
    names = global_ranks({"communicators": members}, own, looks)

    places = [
        {names[key]: one for one in row.ranks if (key := (one[1], one[2])) in names}
        for row in pace.communicators
    ]
    return JobPace(
        looks=pace.looks,
        answered=pace.answered,
        seconds=pace.seconds,
        why=pace.why or "no answer",
        form=str(pace.form),
        groups=[
            Group(row.size, row.launched, row.total, row.missing,
                  {rank: Behind(*one[4:]) for rank, one in named.items()})
            for row, named in zip(pace.communicators, places, strict=True)
        ],
        ranks=ranks,
        hosts={rank: one[1] for named in places for rank, one in named.items()},
    )  # fmt: skip


def _ranks(host: str, pace: PaceSection, ranks: Sequence[RankLook]) -> Iterator[RankPace]:
    used = {row.pid: row for row in pace.ranks}
    looks = {look.pid: look for look in ranks if look.host == host and look.rank is not None}
    card_of: dict[int, Card] = {}
    for board in pace.gpus:
        for _, pid, _ in board.processes:
            if pid in looks:
                card_of.setdefault(pid, board)
    if not any(card.processes for card in pace.gpus):
        # as in a container, whose driver shows no process: RAS has the number of the GPU
        card_of = dict(_cards_by_ras(pace, looks))
    for pid, look in looks.items():
        row, card = used.get(pid, UsedRow(pid)), card_of.get(pid)
        own = [one for one in card_of.values() if one is card]
        gpu, card = f"GPU {card.index}" if card else look.gpu, card or Card(-1)
        yield RankPace(
            look.rank or 0, host, gpu, pid, row.cpu_cores, row.run_queue, card.name, card.power_w,
            card.clock_sm_mhz, card.utilization_percent, card.memory_activity_percent,
            {name: count / card.looks for name, count in card.throttle.items()}
            if card.looks >= 1 else {},
            len(own) <= 1,
            tuple(
                f"process {one} ({command})" for one, of, command in card.processes if of is None
            ),
            look,
        )  # fmt: skip


def _cards_by_ras(pace: PaceSection, looks: Mapping[int, RankLook]) -> Iterator[tuple[int, Card]]:
    cards = {card.index: card for card in pace.gpus}
    own = {look.own_pid: pid for pid, look in looks.items()}
    for row in pace.communicators:
        for _, _, pid, gpu, *_ in row.ranks:
            if pid in own and gpu in cards:
                yield own[pid], cards[gpu]
