"""The answers of NCCL's RAS as what they show of a job. Values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Mapping
from typing import Any

from unhang.core.verdict.communicators import Lag, Standing
from unhang_node.base.parse.values import as_list, as_map, as_maps, whole_or_none

# host and pid, as RAS has them; of a rank that is only counted its communicator and -1 - rank
Key = tuple[str, int]


def standing_between(
    first: Mapping[str, Any],
    last: Mapping[str, Any],
    names: Mapping[Key, int],
    asleep: Container[int | None] = (),
    waiting: Collection[int] = (),
) -> Standing:
    """What two answers show, or one that is given twice. names: rank of the job of each process.
    asleep: ranks that took no processor time between the two, so that they launched nothing.
    waiting: ranks that other evidence shows in a wait."""
    counts, before = _counts(last, names), _counts(first, names)
    both = first is not last
    lags = [lag for lag in _lags(counts) if not both or lag in _lags(before)]
    moved = _rose(before, counts, asleep) if both and counts else None
    missing, errors, places = _gone(last, names)
    sizes = [*map(_size, communicator_rows(last))]
    return Standing(
        version=str(last.get("version")), moved=moved, lags=tuple(lags),
        ranks=frozenset({rank for one in counts.values() for rank in one} | set(missing)),
        missing=missing, errors=errors, total=_totals(counts), places=places,
        starting=_starting(last, names), sharing=_sharing(counts),
        world_size=max(sizes, default=0) or None, counts_all=last.get("form") == "json",
        waiting=waiting,
    )  # fmt: skip


def communicator_rows(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The communicators of an answer, the largest first."""
    return sorted(as_maps(answer.get("communicators")), key=lambda row: -_size(row))


def _size(row: Mapping[str, Any]) -> int:
    return whole_or_none(row.get("size")) or 0


def places_of(row: Mapping[str, Any]) -> list[list[Any]]:
    """[rank within the communicator, host, pid, gpu, ...] of all its ranks that RAS names."""
    return [*_members(row, "members"), *_members(row, "missing")]


def ranks_by_largest(answer: Mapping[str, Any]) -> dict[Key, int]:
    """{(host, pid): rank of the job}: the largest communicator numbers them as the job does, if it
    has all processes of it."""
    communicators = communicator_rows(answer)
    if communicators and _size(communicators[0]) < (answer.get("processes") or 0):
        return {}
    names: dict[Key, int] = {}
    for row in communicators:
        if row.get("size") == communicators[0].get("size"):
            for one in places_of(row):
                names.setdefault((str(one[1]), one[2]), one[0])
    return names


def _members(row: Mapping[str, Any], name: str) -> list[list[Any]]:
    return [
        one
        for one in as_list(row.get(name))
        if isinstance(one, list)
        and len(one) >= 4
        and isinstance(one[0], int)
        and isinstance(one[2], int)
    ]


def _global_of(row: Mapping[str, Any], names: Mapping[Key, int]) -> dict[int, int | None]:
    """Rank within a communicator -> rank of the job."""
    return {one[0]: names.get((str(one[1]), one[2])) for one in _members(row, "members")}


def _counts(
    answer: Mapping[str, Any], names: Mapping[Key, int]
) -> dict[tuple[str, str], dict[int, int]]:
    """{(communicator, operation): {rank: times launched}} of operations that at least one rank
    launched."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    for row in communicator_rows(answer):
        global_of = _global_of(row, names)
        groups = [
            (as_list(group.get("ranks")), _launched(group)) for group in as_maps(row.get("counts"))
        ]
        operations = {op for _, launched in groups for op in launched}
        for ranks, launched in groups:
            for rank in ranks:
                if not isinstance(rank, int):
                    continue
                name = global_of.get(rank, names.get((str(row.get("hash")), -1 - rank)))
                if name is not None:
                    for op in operations if answer.get("form") == "json" else launched:
                        found.setdefault((str(row.get("hash")), op), {})[name] = launched.get(op, 0)
    return found


def _launched(group: Mapping[str, Any]) -> dict[str, int]:
    counts = as_map(group.get("ops"))
    return {str(op): count for op, count in counts.items() if isinstance(count, int)}


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
    found: Counter[int] = Counter()
    for by_rank in counts.values():
        found.update(by_rank)
    return found


def _gone(
    answer: Mapping[str, Any], names: Mapping[Key, int]
) -> tuple[dict[int, bool], dict[int, str], dict[int, tuple[str, int]]]:
    missing: dict[int, bool] = {}
    errors: dict[int, str] = {}
    places = {rank: key for key, rank in names.items()}
    for row in communicator_rows(answer):
        global_of = _global_of(row, names)
        for one in _members(row, "missing"):
            rank = names.get((str(one[1]), one[2]))
            if rank is not None:
                missing[rank] = missing.get(rank, False) or one[-1] is True
        for one in as_list(row.get("errors")):
            if isinstance(one, list) and len(one) == 2 and isinstance(one[0], int):
                name = global_of.get(one[0])
                if name is not None:
                    errors[name] = str(one[1])
    return missing, errors, places


def _starting(answer: Mapping[str, Any], names: Mapping[Key, int]) -> frozenset[int]:
    return frozenset(
        name
        for row in communicator_rows(answer)
        for rank, name in _global_of(row, names).items()
        if name is not None and rank in as_list(row.get("starting"))
    )
