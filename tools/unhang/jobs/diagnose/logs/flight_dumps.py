"""Reads files of PyTorch's flight recorder, pickles or JSON. Unpickling can run code, so only plain
data is admitted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.limits import Limits, Stopped, run_limited
from unhang.jobs.flight import MOST_TEXT, Entry, Flight, flight_of
from unhang_node.base.parse.plain_pickle import NotPlain, unpickle_plain
from unhang_node.base.parse.values import whole_or_none

LARGEST_DUMP = 64 * 1024 * 1024  # a flight-recorder dump has a few MB and is kept in memory
LIMITS = Limits(cpu_s=20, memory_bytes=1 << 30, wall_s=60)
_RANK_IN_NAME = re.compile(r"(?:rank|_|-|\.)_?(?P<rank>\d{1,6})(?:\.(?:pkl|pickle|json|bin|txt))?$")
_OF_RANK = re.compile(r"(?:rank)?_?(?P<rank>\d{1,6})(?:\.json)?")


def read_dumps(
    data: bytes, file: str, limits: Limits = LIMITS, written_s: float | None = None
) -> tuple[Flight, ...]:
    """The dumps of a file, mostly one. written_s: of the file. Raises ValueError with the reason in
    one line if it is not a dump, is a pickle with anything but data, or needs too much memory or
    time. It is read in a child process with limits: a few bytes of a pickle can allocate gigabytes,
    and lists can contain themselves."""
    if len(data) > LARGEST_DUMP:
        raise ValueError(f"the dump has more than {LARGEST_DUMP} bytes")
    read = run_limited(lambda _mark: _rows(data, file), limits)
    if isinstance(read, Stopped):
        raise ValueError(f"reading it took more than it may of: {read.by}")
    if isinstance(read, str):
        raise ValueError(read)
    return tuple(
        Flight(file, rank, tuple(Entry(*row) for row in rows), groups, status, written_s)
        for rank, rows, groups, status in read
    )


def _rows(data: bytes, file: str) -> list[tuple] | str:
    """The dumps as flat tuples, or why they cannot be read."""
    try:
        content = unpickle_plain(data) if data[:1] == b"\x80" else json.loads(data)
        dumps = list(_dumps(content))
        if not dumps:
            return "it is not a flight-recorder dump with entries"
        rank_of_file = _rank_in(file) if len(dumps) == 1 else None
        flights = [
            flight_of(dump, file, rank if rank is not None else rank_of_file)
            for rank, dump in dumps
        ]
        return [
            (one.rank, [tuple(vars(each).values()) for each in one.entries], one.groups, one.status)
            for one in flights
        ]
    except NotPlain as problem:
        return f"the dump {problem}, which is not plain data"
    except RecursionError:
        return "nests too deeply"
    except MemoryError:
        raise
    except Exception as problem:  # a damaged pickle may raise anything; no code of the dump was run
        return f"is damaged: {type(problem).__name__}: {str(problem)[:120]}"


def _dumps(content: Any) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """(rank if the content has it, dump) of one dump, or of several by rank. torch's debug server
    leaves out the entries of a rank that has none."""
    if _is_dump(content):
        yield whole_or_none(content.get("rank")), content
    elif isinstance(content, Mapping):
        for key, one in content.items():
            found = _OF_RANK.fullmatch(str(key)[:MOST_TEXT])
            if found and _is_dump(one):
                yield int(found["rank"]), one
    elif isinstance(content, list):
        for place, one in enumerate(content):
            if _is_dump(one):
                rank = whole_or_none(one.get("rank"))
                yield place if rank is None else rank, one


def _is_dump(content: Any) -> bool:
    return isinstance(content, Mapping) and isinstance(
        content.get("entries", [] if "pg_status" in content else None), list
    )


def _rank_in(file: str) -> int | None:
    found = _RANK_IN_NAME.search(file)
    return int(found["rank"]) if found else None
