"""Reads PyTorch's flight-recorder dumps, pickles or JSON. Unpickling can run code, so only plain
data is admitted.

Shape (torch/csrc/distributed/c10d/FlightRecorder.hpp): {"version", "pg_config", "pg_status",
"entries": [{"process_group", "collective_seq_id", "p2p_seq_id", "profiling_name", "input_sizes",
"output_sizes", "state", "timeout_ms", ...}]}; one file per rank, the rank at the end of its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unhang.core.limits import Limits, Stopped, run_limited
from unhang.core.plain_pickle import NotPlain, unpickle_plain

LARGEST_DUMP = 64 * 1024 * 1024  # a flight-recorder dump has a few MB and is kept in memory
MOST_ENTRIES = 100_000
LIMITS = Limits(cpu_s=20, memory_bytes=1 << 30, wall_s=60)
MOST_TEXT = 200
_RANK_IN_NAME = re.compile(r"(?:rank|_|-|\.)_?(?P<rank>\d{1,6})(?:\.(?:pkl|pickle|json|bin|txt))?$")


@dataclass(frozen=True)
class Collective:
    """One entry of a dump. state: scheduled, started or completed. sizes: of its inputs, as lists
    of dimensions."""

    group: str
    seq: int
    name: str
    state: str
    sizes: str
    timeout_ms: int | None = None


@dataclass(frozen=True)
class Flight:
    """The collectives that one rank recorded, oldest first. rank None if neither file name nor
    content has it."""

    file: str
    rank: int | None
    entries: tuple[Collective, ...]


def read_dump(data: bytes, file: str, limits: Limits = LIMITS) -> Flight:
    """A dump's collectives. Raises ValueError with the reason in one line if it is not a dump, is a
    pickle with anything but data, or needs too much memory or time. The dump is read in a child
    process with limits: a few bytes of a pickle can allocate gigabytes, and lists can contain
    themselves."""
    if len(data) > LARGEST_DUMP:
        raise ValueError(f"a dump of more than {LARGEST_DUMP} bytes")
    read = run_limited(lambda _mark: _rows(data, file), limits)
    if isinstance(read, Stopped):
        raise ValueError(f"reading it took more than it may of: {read.by}")
    if isinstance(read, str):
        raise ValueError(read)
    rank, rows = read
    return Flight(file, rank, tuple(Collective(*row) for row in rows))


def _rows(data: bytes, file: str) -> tuple[int | None, list[tuple]] | str:
    """(rank, the entries as flat tuples), or why the dump cannot be read."""
    try:
        content = unpickle_plain(data) if data[:1] == b"\x80" else json.loads(data)
        if not isinstance(content, Mapping) or not isinstance(content.get("entries"), list):
            return "expected a flight-recorder dump with entries, found something else"
        return _rank(content, file), [
            (one.group, one.seq, one.name, one.state, one.sizes, one.timeout_ms)
            for one in collectives_of(content["entries"])
        ]
    except NotPlain as problem:
        return f"the dump {problem}, which is not plain data"
    except RecursionError:
        return "nests too deeply"
    except MemoryError:
        raise
    except Exception as problem:  # a damaged pickle may raise anything; no code of the dump was run
        return f"is damaged: {type(problem).__name__}: {str(problem)[:120]}"


def collectives_of(entries: Any) -> tuple[Collective, ...]:
    """The collectives among a dump's entries, which may be anything."""
    return (
        tuple(one for each in entries[-MOST_ENTRIES:] if (one := _collective(each)))
        if isinstance(entries, list)
        else ()
    )


def _collective(each: Any) -> Collective | None:
    if not isinstance(each, Mapping):
        return None
    group = each.get("process_group") or each.get("pg_name") or each.get("pg_id") or "0"
    if isinstance(group, (list, tuple)):
        group = group[0] if group else "0"
    seq = each.get("collective_seq_id", each.get("seq_id"))
    if isinstance(seq, bool) or not isinstance(seq, int):
        return None
    timeout = each.get("timeout_ms")
    name = _text(each.get("profiling_name", "?"))[:80].removeprefix("nccl:")
    return Collective(
        _text(group)[:80],
        seq,
        name,
        _text(each.get("state", "?"))[:20],
        _sizes(each),
        timeout if isinstance(timeout, int) else None,
    )


def _text(value: Any) -> str:
    """A text or a number as text; "" for a container, because one that contains itself has no
    end."""
    return str(value)[:MOST_TEXT] if isinstance(value, (str, int, float)) or value is None else "?"


def _sizes(each: Mapping[str, Any]) -> str:
    sizes = each.get("input_sizes")
    if not isinstance(sizes, (list, tuple)):
        return ""
    flat = [
        [part for part in one[:16] if isinstance(part, int)]
        if isinstance(one, (list, tuple))
        else one
        for one in sizes[:8]
    ]
    return str([one for one in flat if isinstance(one, (list, int))])[:MOST_TEXT]


def _rank(content: Mapping[str, Any], file: str) -> int | None:
    rank = content.get("rank")
    if isinstance(rank, int) and not isinstance(rank, bool):
        return rank
    found = _RANK_IN_NAME.search(file)
    return int(found["rank"]) if found else None


def compare_flights(flights: list[Flight]) -> dict[str, Any]:
    """{"ranks": [...], "groups": [{group, seq, behind: [rank], ahead: [rank], calls: {what:
    [rank]}, stuck: [rank]}]} over the dumps of a job.

    behind: ranks whose newest collective of the group is older than that of the others. calls: more
    than one means that the ranks called different things under one sequence number. stuck: ranks
    that started the newest common collective and did not finish it.
    """
    groups: dict[str, dict[int, dict[int, Collective]]] = {}
    for place, flight in enumerate(flights):
        rank = flight.rank if flight.rank is not None else place
        for entry in flight.entries:
            groups.setdefault(entry.group, {}).setdefault(rank, {})[entry.seq] = entry
    answers = [
        answer
        for group, by_rank in sorted(groups.items())
        if len(by_rank) > 1 and (answer := _compare_group(group, by_rank))
    ]
    return {
        "ranks": sorted({rank for by_rank in groups.values() for rank in by_rank}),
        "groups": answers,
    }


def _compare_group(
    group: str, by_rank: Mapping[int, Mapping[int, Collective]]
) -> dict[str, Any] | None:
    newest = {rank: max(entries) for rank, entries in by_rank.items()}
    common = min(newest.values())
    calls: dict[str, list[int]] = {}
    different_at = None
    for seq in sorted(set.intersection(*(set(entries) for entries in by_rank.values()))):
        calls = {}
        for rank, entries in sorted(by_rank.items()):
            one = entries[seq]
            calls.setdefault(
                f"{one.name} {one.sizes if 'gather' not in one.name.lower() else ''}".strip(), []
            ).append(rank)
        if len(calls) > 1:
            different_at = seq
            break
    behind = sorted(
        rank for rank, seq in newest.items() if seq == common and max(newest.values()) > common
    )
    stuck = sorted(
        rank
        for rank, entries in by_rank.items()
        if common in entries and entries[common].state != "completed"
    )
    if different_at is None and not behind and not stuck:
        return None
    return {
        "group": group, "seq": different_at or common, "behind": behind,
        "ahead": sorted(set(newest) - set(behind)) if behind else [],
        "calls": calls if different_at is not None else {}, "stuck": stuck,
    }  # fmt: skip
