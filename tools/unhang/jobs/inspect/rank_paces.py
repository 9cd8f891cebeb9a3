"""The fifty looks of `inspect --slow` as values: a row for each rank, and the communicators in
which ranks may be compared. Documents come from nodes: what is not as expected is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.core.verdict.job import RankLook
from unhang.jobs.inspect.rank_looks import host_of, section
from unhang.jobs.inspect.ras_of_job import global_ranks
from unhang.jobs.inspect.whose_gpus import number_or_none
from unhang_node.base.parse.values import as_list, as_maps, number_of


@dataclass(frozen=True)
class RankPace:
    """One rank in those ten seconds. cores: that its process used; run_queue: share of the time in
    which its main thread was runnable without a processor; the GPU's values are medians, None where
    the driver did not tell; throttle: {reason: share of the looks}; alone: no other rank is on the
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


def job_pace(documents: Sequence[Mapping[str, Any]], looks: Sequence[RankLook]) -> JobPace | None:
    """None where no node was asked for it."""
    asked = [document for document in documents if "looks" in section(document, "pace")]
    if not asked:
        return None
    ranks = {pace.rank: pace for document in asked for pace in _ranks(document, looks)}
    best = max(asked, key=lambda document: number_of(section(document, "pace").get("answered")))
    pace = section(best, "pace")
    found = [
        (row, [one for one in as_list(row.get("ranks")) if _is_place(one)])
        for row in as_maps(pace.get("communicators"))
    ]
    own = [look for look in looks if look.host == host_of(best)]
    answer = {
        "communicators": [
            {"size": row.get("size"), "members": [one[:4] for one in ones]} for row, ones in found
        ]
    }
    names = global_ranks(answer, own, looks)

    def named(ones: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return ((names[key], one) for one in ones if (key := (str(one[1]), one[2])) in names)

    return JobPace(
        looks=int(number_of(pace.get("looks"))),
        answered=int(number_of(pace.get("answered"))),
        seconds=number_of(pace.get("seconds")),
        why=str(pace.get("why") or "no answer"),
        form=str(pace.get("form")),
        groups=[
            Group(
                size=int(number_of(row.get("size"))),
                launched=int(number_of(row.get("launched"))),
                total=int(number_of(row.get("total"))),
                missing=int(number_of(row.get("missing"))),
                ranks={rank: Behind(*one[4:7]) for rank, one in named(ones)},
            )
            for row, ones in found
        ],
        ranks=ranks,
        hosts={rank: str(one[1]) for _, ones in found for rank, one in named(ones)},
    )


def _is_place(one: Any) -> bool:
    return (
        isinstance(one, list)
        and len(one) == 7
        and isinstance(one[1], str)
        and all(type(one[at]) is int and one[at] >= 0 for at in (0, 2, 3, 4, 5, 6))
    )


def _ranks(document: Mapping[str, Any], ranks: Sequence[RankLook]) -> Iterator[RankPace]:
    pace, host = section(document, "pace"), host_of(document)
    used = {
        row["pid"]: row for row in as_maps(pace.get("ranks")) if isinstance(row.get("pid"), int)
    }
    looks = {look.pid: look for look in ranks if look.host == host and look.rank is not None}
    card_of: dict[int, Mapping[str, Any]] = {}
    for board in as_maps(pace.get("gpus")):
        for process in _processes(board):
            if process[1] in looks:
                card_of.setdefault(process[1], board)
    if not any(_processes(card) for card in as_maps(pace.get("gpus"))):
        # as in a container, whose driver shows no process: RAS has the number of the GPU
        card_of = dict(_cards_by_ras(pace, looks))
    for pid, look in looks.items():
        row, card = used.get(pid, {}), card_of.get(pid, {})
        own = [one for one in card_of if card and card_of[one] is card]
        yield RankPace(
            rank=look.rank or 0,
            host=host,
            gpu=f"GPU {int(number_of(card.get('index')))}" if card else look.gpu,
            pid=pid,
            cores=number_or_none(row.get("cpu_cores")),
            run_queue=number_or_none(row.get("run_queue")),
            card=str(card.get("name")) if card else None,
            power_w=number_or_none(card.get("power_w")),
            clock_mhz=number_or_none(card.get("clock_sm_mhz")),
            busy=number_or_none(card.get("utilization_percent")),
            memory=number_or_none(card.get("memory_activity_percent")),
            throttle=_shares(card),
            alone=len(own) <= 1,
            neighbours=tuple(
                f"process {process[0]} ({process[2]})"
                for process in _processes(card)
                if process[1] is None
            ),
            look=look,
        )


def _cards_by_ras(
    pace: Mapping[str, Any], looks: Mapping[int, RankLook]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    cards = {
        card["index"]: card
        for card in as_maps(pace.get("gpus"))
        if isinstance(card.get("index"), int)
    }
    own = {look.own_pid: pid for pid, look in looks.items()}
    for row in as_maps(pace.get("communicators")):
        for one in as_list(row.get("ranks")):
            if _is_place(one) and one[2] in own and one[3] in cards:
                yield own[one[2]], cards[one[3]]


def _processes(card: Mapping[str, Any]) -> list[tuple[int, int | None, str]]:
    """(pid, the rank's pid that it is or is below, None where it is of no rank, its command)."""
    return [
        (row[0], row[1], str(row[2]))
        for row in as_list(card.get("processes"))
        if isinstance(row, list)
        and len(row) == 3
        and isinstance(row[0], int)
        and (row[1] is None or isinstance(row[1], int))
    ]


def _shares(card: Mapping[str, Any]) -> dict[str, float]:
    reasons, looks = card.get("throttle"), number_of(card.get("looks"))
    return (
        {str(name): number_of(count) / looks for name, count in reasons.items()}
        if isinstance(reasons, Mapping) and looks >= 1
        else {}
    )
