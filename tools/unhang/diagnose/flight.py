"""PyTorch's flight-recorder dumps, as pickles or JSON. A pickle is a program: this reader runs none, it admits plain data only.

Shape (torch/csrc/distributed/c10d/FlightRecorder.hpp): {"version", "pg_config", "pg_status", "entries": [{"process_group", "collective_seq_id",
"p2p_seq_id", "profiling_name", "input_sizes", "output_sizes", "state", "timeout_ms", ...}]}; one file per rank, the rank at the end of its name.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unhang.diagnose.reading import LARGEST_DUMP

MOST_ENTRIES = 100_000
_RANK_IN_NAME = re.compile(r"(?:rank|_|-|\.)_?(?P<rank>\d{1,6})(?:\.(?:pkl|pickle|json|bin|txt))?$")


class NotPlain(pickle.UnpicklingError):
    """The pickle asks for something that is not plain data."""


@dataclass(frozen=True)
class Collective:
    """One entry of a dump. state: scheduled, started or completed. sizes: of its inputs, as lists of dimensions."""

    group: str
    seq: int
    name: str
    state: str
    sizes: str
    timeout_ms: int | None = None


@dataclass(frozen=True)
class Flight:
    """What one rank recorded, oldest first. rank None when neither name nor content tells it."""

    file: str
    rank: int | None
    entries: tuple[Collective, ...]


class _PlainUnpickler(pickle.Unpickler):
    """Lists, maps, tuples, sets, texts, numbers, None: whatever needs a name to be looked up is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise NotPlain(f"the dump asks for {module}.{name}, which is not plain data")

    def persistent_load(self, pid: Any) -> Any:
        raise NotPlain("the dump refers to something outside of itself")


def read_dump(data: bytes, file: str) -> Flight:
    """A dump's collectives. Raises ValueError with one line that says why it is none: also for a pickle that is more than data."""
    if len(data) > LARGEST_DUMP:
        raise ValueError(f"a dump of more than {LARGEST_DUMP} bytes")
    content = _loaded(data)
    if not isinstance(content, Mapping) or not isinstance(content.get("entries"), list):
        raise ValueError("expected a flight-recorder dump with entries, found something else")
    entries = tuple(one for each in content["entries"][-MOST_ENTRIES:] if (one := _collective(each)))
    return Flight(file, _rank(content, file), entries)


def _loaded(data: bytes) -> Any:
    try:
        if data[:1] == b"\x80":
            return _PlainUnpickler(io.BytesIO(data), encoding="utf-8", errors="replace").load()
        return json.loads(data)
    except NotPlain as problem:
        raise ValueError(str(problem)) from None
    except RecursionError:
        raise ValueError("nests too deeply") from None
    except Exception as problem:  # a damaged pickle may raise anything; no code of the dump was run
        raise ValueError(f"is damaged: {type(problem).__name__}: {str(problem)[:120]}") from None


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
    name = str(each.get("profiling_name", "?"))[:80].removeprefix("nccl:")
    return Collective(str(group)[:80], seq, name, str(each.get("state", "?"))[:20], _sizes(each), timeout if isinstance(timeout, int) else None)


def _sizes(each: Mapping[str, Any]) -> str:
    sizes = each.get("input_sizes")
    if not isinstance(sizes, (list, tuple)):
        return ""
    return str([list(one) if isinstance(one, (list, tuple)) else one for one in sizes[:8]])[:200]


def _rank(content: Mapping[str, Any], file: str) -> int | None:
    rank = content.get("rank")
    if isinstance(rank, int) and not isinstance(rank, bool):
        return rank
    found = _RANK_IN_NAME.search(file)
    return int(found["rank"]) if found else None


def compare_flights(flights: list[Flight]) -> dict[str, Any]:
    """{"ranks": [...], "groups": [{group, seq, behind: [rank], ahead: [rank], calls: {what: [rank]}, stuck: [rank]}]} over the dumps of a job.

    behind: ranks whose newest collective of the group is older than that of the others. calls: more than one means that the ranks called different
    things under one sequence number. stuck: ranks that started the newest common collective and did not finish it.
    """
    groups: dict[str, dict[int, dict[int, Collective]]] = {}
    for place, flight in enumerate(flights):
        rank = flight.rank if flight.rank is not None else place
        for entry in flight.entries:
            groups.setdefault(entry.group, {}).setdefault(rank, {})[entry.seq] = entry
    answers = [answer for group, by_rank in sorted(groups.items()) if len(by_rank) > 1 and (answer := _compare_group(group, by_rank))]
    return {"ranks": sorted({rank for by_rank in groups.values() for rank in by_rank}), "groups": answers}


def _compare_group(group: str, by_rank: Mapping[int, Mapping[int, Collective]]) -> dict[str, Any] | None:
    newest = {rank: max(entries) for rank, entries in by_rank.items()}
    common = min(newest.values())
    calls: dict[str, list[int]] = {}
    different_at = None
    for seq in sorted(set.intersection(*(set(entries) for entries in by_rank.values()))):
        calls = {}
        for rank, entries in sorted(by_rank.items()):
            one = entries[seq]
            calls.setdefault(f"{one.name} {one.sizes if 'gather' not in one.name.lower() else ''}".strip(), []).append(rank)
        if len(calls) > 1:
            different_at = seq
            break
    behind = sorted(rank for rank, seq in newest.items() if seq == common and max(newest.values()) > common)
    stuck = sorted(rank for rank, entries in by_rank.items() if common in entries and entries[common].state != "completed")
    if different_at is None and not behind and not stuck:
        return None
    return {
        "group": group, "seq": different_at or common, "behind": behind, "ahead": sorted(set(newest) - set(behind)) if behind else [],
        "calls": calls if different_at is not None else {}, "stuck": stuck,
    }  # fmt: skip
