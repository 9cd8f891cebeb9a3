"""What NCCL's RAS tells of the job's communicators: who waits for whom. Values in, values out.

A rank that launched an operation which another rank of the communicator has not launched is ahead
there and may wait; the other is behind. Whoever is behind somewhere and ahead nowhere is waited for
and waits for nobody. RAS counts what was launched: an operation that all launched and none ends
looks well.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.jobs.inspect.rank_looks import RankLook, host_of, number_of, rows, section

Key = tuple[str, int]  # host and pid, as RAS has them


@dataclass(frozen=True)
class Lag:
    """One operation of one communicator that some ranks launched oftener than others. counts:
    {rank: times}."""

    communicator: str
    op: str
    counts: Mapping[int, int]

    @property
    def highest(self) -> int:
        """The operation in which those ahead are."""
        return max(self.counts.values())

    def behind(self) -> set[int]:
        """Ranks that have not launched it."""
        return {rank for rank, count in self.counts.items() if count < self.highest}

    def ahead(self) -> set[int]:
        """Ranks that launched more than the last."""
        return {rank for rank, count in self.counts.items() if count > min(self.counts.values())}


@dataclass(frozen=True)
class Standing:
    """What RAS knows of the job. moved: a count rose between the looks (None: one look alone).
    ranks: of all communicators. missing: {rank: whether RAS takes it for dead}. total: {rank:
    operations launched}; starting: ranks that still set up a communicator; sharing: two
    communicators in which something was launched share two ranks."""

    version: str = ""
    moved: bool | None = None
    lags: tuple[Lag, ...] = ()
    ranks: frozenset[int] = frozenset()
    missing: Mapping[int, bool] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)
    total: Mapping[int, int] = field(default_factory=dict)
    places: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    starting: frozenset[int] = frozenset()
    world_size: int | None = None
    sharing: bool = False

    @property
    def roots(self) -> list[int]:
        """Ranks that others wait for and that wait for nobody."""
        behind = {rank for lag in self.lags for rank in lag.behind()}
        ahead = {rank for lag in self.lags for rank in lag.ahead()}
        return sorted(behind - ahead)

    @property
    def is_split(self) -> bool:
        """Ranks wait for each other: each is ahead in one operation and behind in another."""
        return bool(self.lags) and not self.roots


def standing_of(
    documents: Sequence[Mapping[str, Any]], looks: Sequence[RankLook]
) -> Standing | None:
    """The answer of the node whose RAS answered oftenest; None when none did. Every RAS answers for
    the whole job."""
    answers = [
        [
            row
            for row in rows(section(document, "ras").get("looks"))
            if isinstance(row.get("communicators"), list)
        ]
        for document in documents
    ]
    best = max(range(len(answers)), key=lambda at: len(answers[at]), default=None)
    if best is None or not answers[best]:
        return None
    own = [look for look in looks if look.host == host_of(documents[best])]
    first, last = answers[best][0], answers[best][-1]
    names = _global_ranks(last, own, looks)
    counts, before = _counts(last, names), _counts(first, names)
    both = first is not last
    lags = [lag for lag in _lags(counts) if not both or any(lag == one for one in _lags(before))]
    # who launches takes processor time
    asleep = {look.rank for look in looks if look.waited and look.cpu == 0}
    moved = _rose(before, counts, asleep) if both and counts else None
    missing, errors, places = _gone(last, names)
    return Standing(
        version=str(last.get("version")), moved=moved, lags=tuple(lags),
        ranks=frozenset({rank for one in counts.values() for rank in one} | set(missing)),
        missing=missing, errors=errors, total=_totals(counts), places=places,
        starting=_starting(last, names), sharing=_sharing(counts),
        world_size=max((int(row["size"]) for row in rows(last["communicators"]) if isinstance(row.get("size"), int)), default=None),  # noqa: E501
    )  # fmt: skip


def _members(row: Mapping[str, Any], name: str) -> list[list[Any]]:
    return [
        one
        for one in _list(row, name)
        if isinstance(one, list)
        and len(one) >= 4
        and isinstance(one[0], int)
        and isinstance(one[2], int)
    ]


def _list(row: Mapping[str, Any], name: str) -> list[Any]:
    value = row.get(name)
    return value if isinstance(value, list) else []


def _global_ranks(
    answer: Mapping[str, Any], own: Sequence[RankLook], looks: Sequence[RankLook]
) -> dict[Key, int]:
    """{(host, pid): rank of the job}. The largest communicator numbers the ranks as the job does;
    what the nodes say of their own processes comes first."""
    communicators = sorted(
        rows(answer.get("communicators")), key=lambda row: -number_of(row.get("size"))
    )
    names: dict[Key, int] = {}
    for row in communicators:
        for one in (*_members(row, "members"), *_members(row, "missing")):
            if row.get("size") == communicators[0].get("size"):
                names.setdefault((str(one[1]), one[2]), one[0])
    by_pid: dict[int, list[int]] = {}
    for look in looks:
        if look.rank is not None:
            by_pid.setdefault(look.own_pid, []).append(look.rank)
    for row in communicators:
        for one in (*_members(row, "members"), *_members(row, "missing")):
            ranks = by_pid.get(one[2], [])
            if len(ranks) == 1 and (
                len(looks) > len(own)
                or names.get((str(one[1]), one[2]), ranks[0]) == ranks[0]
                or len(communicators) > 1
            ):
                names[str(one[1]), one[2]] = ranks[0]
    return names


def _counts(
    answer: Mapping[str, Any], names: Mapping[Key, int]
) -> dict[tuple[str, str], dict[int, int]]:
    """{(communicator, operation): {rank: times launched}} of operations that at least one rank
    launched."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    for row in rows(answer.get("communicators")):
        global_of = {one[0]: names.get((str(one[1]), one[2])) for one in _members(row, "members")}
        groups = [(_list(group, "ranks"), _launched(group)) for group in rows(row.get("counts"))]
        operations = {op for _, launched in groups for op in launched}
        for ranks, launched in groups:
            for rank in ranks:
                name = global_of.get(rank) if isinstance(rank, int) else None
                if name is not None:
                    for op in operations if answer.get("form") == "json" else launched:
                        found.setdefault((str(row.get("hash")), op), {})[name] = launched.get(op, 0)
    return found


def _launched(group: Mapping[str, Any]) -> dict[str, int]:
    counts = group.get("ops")
    return (
        {str(op): count for op, count in counts.items() if isinstance(count, int)}
        if isinstance(counts, Mapping)
        else {}
    )


def _lags(counts: Mapping[tuple[str, str], Mapping[int, int]]) -> list[Lag]:
    return [
        Lag(name, op, dict(by_rank))
        for (name, op), by_rank in sorted(counts.items())
        if len(set(by_rank.values())) > 1
    ]


def _rose(
    before: Mapping[Any, Mapping[int, int]],
    after: Mapping[Any, Mapping[int, int]],
    asleep: Container[int | None],
) -> bool:
    rises = (
        rank for key, by_rank in after.items() for rank, count in by_rank.items()
        if rank in before.get(key, {rank: 0}) and count > before.get(key, {}).get(rank, 0)
    )  # fmt: skip
    return any(rank not in asleep for rank in rises)


def _sharing(counts: Mapping[tuple[str, str], Mapping[int, int]]) -> bool:
    members: dict[str, set[int]] = {}
    for (name, _), by_rank in counts.items():
        members.setdefault(name, set()).update(rank for rank, count in by_rank.items() if count)
    groups = list(members.values())[:64]
    return any(len(one & other) > 1 for at, one in enumerate(groups) for other in groups[at + 1 :])


def _totals(counts: Mapping[Any, Mapping[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for by_rank in counts.values():
        for rank, count in by_rank.items():
            found[rank] = found.get(rank, 0) + count
    return found


def _gone(
    answer: Mapping[str, Any], names: Mapping[Key, int]
) -> tuple[dict[int, bool], dict[int, str], dict[int, tuple[str, int]]]:
    missing: dict[int, bool] = {}
    errors: dict[int, str] = {}
    places = {rank: key for key, rank in names.items()}
    for row in rows(answer.get("communicators")):
        global_of = {one[0]: names.get((str(one[1]), one[2])) for one in _members(row, "members")}
        for one in _members(row, "missing"):
            rank = names.get((str(one[1]), one[2]))
            if rank is not None:
                missing[rank] = missing.get(rank, False) or one[-1] is True
        for one in _list(row, "errors"):
            name = (
                global_of.get(one[0])
                if isinstance(one, list) and len(one) == 2 and isinstance(one[0], int)
                else None
            )
            if name is not None:
                errors[name] = str(one[1])
    return missing, errors, places


def _starting(answer: Mapping[str, Any], names: Mapping[Key, int]) -> frozenset[int]:
    found: set[int] = set()
    for row in rows(answer.get("communicators")):
        global_of = {one[0]: names.get((str(one[1]), one[2])) for one in _members(row, "members")}
        found |= {
            name
            for rank in _list(row, "starting")
            if isinstance(rank, int) and (name := global_of.get(rank)) is not None
        }
    return frozenset(found)
