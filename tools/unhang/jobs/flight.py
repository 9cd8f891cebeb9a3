"""PyTorch's flight-recorder dumps as values, each from plain data that may hold anything.

Shape (torch/csrc/distributed/c10d/FlightRecorder.hpp): {"version", "pg_config": {name: {"name",
"desc", "ranks": "[0, 4]"}}, "pg_status": {pg_id: {"last_enqueued_collective", ...}}, "entries":
[{"record_id", "pg_id", "process_group": [name, desc], "collective_seq_id", "p2p_seq_id", "is_p2p",
"profiling_name", "input_sizes", "input_dtypes", "state", "frames", ...}]}; one file per rank, the
rank at the end of its name, or several dumps by rank in one JSON object or list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unhang_node.base.parse.values import as_list, as_map, as_maps, whole_or_none

MOST_ENTRIES, MOST_GROUPS, MOST_RANKS = 100_000, 4096, 1 << 20
MOST_TEXT = 200
COMPLETED = "completed"
_MESSAGE = re.compile(
    r"(?:send (?P<by>\d{1,7})->(?P<to>\d{1,7})|recv (?P<at>\d{1,7})<-(?P<of>\d{1,7}))$"
)
_LIBRARY = re.compile(r"(?:^|/)(?:site-packages|dist-packages|torch|lib/python3\.\d+)/|^<")
# operations whose members must bring as many elements; gathers and exchanges may be uneven
_SAME_SIZES = """all_reduce allreduce broadcast reduce _all_gather_base _allgather_base send recv
all_gather_into_tensor _reduce_scatter_base reduce_scatter_tensor"""


@dataclass(frozen=True)
class Entry:
    """One entry of a dump. group: torch's name of it. seq: counts the collectives of the group, or
    its messages if message is not None. message: (sender, receiver) as ranks of the group. state:
    scheduled, started or completed. sizes: what the members must agree on, "" where nothing.
    record: counts all entries of the rank from 0, None if not recorded. where: the innermost line
    that is no library's. created_s: since 1970, on the rank's clock. seen_started_s,
    seen_completed_s: when torch first looked and found it so; of an operation that is open, torch
    looks when it makes the dump. is_new: its GPU has completed it, and torch's watchdog, which
    looks ten times a second, has not noticed."""

    group: str
    description: str
    seq: int
    name: str
    state: str
    sizes: str = ""
    message: tuple[int, int] | None = None
    is_message: bool = False
    record: int | None = None
    pg_id: int | None = None
    where: str = ""
    created_s: float | None = None
    timeout_s: float | None = None
    seen_started_s: float | None = None
    seen_completed_s: float | None = None
    is_new: bool = False


@dataclass(frozen=True)
class Flight:
    """What one rank recorded, oldest first. rank None if neither file name nor content has it.
    groups: {name: (description, ranks of the job in the group's order)}. status: {pg_id: (last
    enqueued, last completed)}. written_s: when the dump was written, since 1970; of
    a copy maybe later; None if unknown."""

    file: str
    rank: int | None
    entries: tuple[Entry, ...]
    groups: Mapping[str, tuple[str, tuple[int, ...]]]
    status: Mapping[int, tuple[int, int]]
    written_s: float | None = None


def flight_of(
    content: Mapping[str, Any], file: str, rank: int | None, written_s: float | None = None
) -> Flight:
    """A dump, which may hold anything, as a value."""
    entries = as_list(content.get("entries"))[-MOST_ENTRIES:]
    return Flight(
        file, rank, tuple(filter(None, map(_entry, entries))),
        _groups(content.get("pg_config")), _status(content.get("pg_status")),
        written_s,
    )  # fmt: skip


def _entry(each: Any) -> Entry | None:
    if not isinstance(each, Mapping):
        return None
    group = each.get("process_group") or each.get("pg_name") or each.get("pg_id") or "0"
    description: Any = ""
    if isinstance(group, (list, tuple)):
        group, description = (*group[:2], "")[:2] if len(group) > 1 else ((*group, "0")[0], "")
    name = _text(each.get("profiling_name", "?"))[:80].partition(":")
    called = name[2] or name[0]
    found = _MESSAGE.match(called)
    message = (int(found["by"] or found["of"]), int(found["to"] or found["at"])) if found else None
    is_message = found is not None or each.get("is_p2p") is True
    seq = whole_or_none(each.get("collective_seq_id", each.get("seq_id")))
    if is_message:
        seq = whole_or_none(each.get("p2p_seq_id", seq))
    if seq is None:
        return None
    state = _text(each.get("state", "?"))[:20]
    if name[0] == "gloo" and each.get("retired") is True:
        state = COMPLETED  # of Gloo, torch notes the end nowhere else
    return Entry(
        _text(group)[:80], _text(description)[:80], seq, called, state,
        _sizes(each, called.partition(" ")[0]), message, is_message,
        whole_or_none(each.get("record_id")), whole_or_none(each.get("pg_id")),
        _where(each.get("frames")) if state != COMPLETED else "",
        _per(each.get("time_created_ns"), 1e9), _per(each.get("timeout_ms"), 1e3),
        _per(each.get("time_discovered_started_ns"), 1e9),
        _per(each.get("time_discovered_completed_ns"), 1e9),
        state == COMPLETED and each.get("retired") is False,
    )  # fmt: skip


def _per(value: Any, unit: float) -> float | None:
    number = whole_or_none(value)
    return None if number is None else number / unit


def _text(value: Any) -> str:
    """A text or a number as text; "" for a container, because one that contains itself has no
    end."""
    return str(value)[:MOST_TEXT] if isinstance(value, (str, int, float)) or value is None else "?"


def _sizes(each: Mapping[str, Any], operation: str) -> str:
    """What the members must agree on. Only the number of elements counts, not their shape."""
    sizes = each.get("input_sizes")
    if operation not in _SAME_SIZES.split() or not isinstance(sizes, (list, tuple)):
        return ""
    rows = [one for one in sizes[:64] if isinstance(one, (list, tuple))]
    if len(rows) != len(sizes) or not all(
        whole_or_none(part) is not None for one in rows for part in one
    ):
        return ""
    types = each.get("input_dtypes")
    kinds = sorted({_text(one) for one in types[:64]}) if isinstance(types, (list, tuple)) else []
    return ", ".join([f"{sum(math.prod(one[:16]) for one in rows)} elements", *kinds])[:MOST_TEXT]


def _where(frames: Any) -> str:
    for frame in as_maps(as_list(frames)[:64]):
        file = _text(frame.get("filename") or "<")
        if not _LIBRARY.search(file):
            return f"{file}:{_text(frame.get('line'))} in {_text(frame.get('name'))[:80]}"
    return ""


def _rows(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, one in [*as_map(value).items()][:MOST_GROUPS]:
        if isinstance(one, Mapping):
            yield _text(key)[:80], one


def _groups(config: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        key: (_text(one.get("desc", ""))[:80], _ranks(one.get("ranks")))
        for key, one in _rows(config)
    }


def _ranks(value: Any) -> tuple[int, ...]:
    """Ranks of a list, or of its text; () if it is no list of different ranks."""
    if isinstance(value, str):
        parts = value.strip("[] ").split(",")
        value = [int(part) for part in parts if part.strip().isdigit()]
        if len(value) != len(parts):
            return ()
    if not isinstance(value, (list, tuple)) or len(value) > MOST_RANKS:
        return ()
    ranks = tuple(one for one in value if whole_or_none(one) is not None and 0 <= one < MOST_RANKS)
    return ranks if len(set(ranks)) == len(value) else ()


def _status(status: Any) -> dict[int, tuple[int, int]]:
    """{pg_id: (last enqueued, last completed)}; torch's JSON writes numbers as texts."""
    found: dict[int, tuple[int, int]] = {}
    for key, one in _rows(status):
        texts = (_text(one.get(f"last_{what}_collective")) for what in ("enqueued", "completed"))
        numbers = [key, *texts]
        if all(re.fullmatch(r"-?\d{1,18}", number) for number in numbers):
            number, *last = map(int, numbers)
            found[number] = last[0], last[1]
    return found
