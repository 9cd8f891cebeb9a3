"""Records of NCCL's and RCCL's Inspector, and the groups in a trace of torch's profiler. Values in,
values out.

Inspector writes a JSON object a line for each operation that ended, with the rank within the
communicator, so no file of it has what hangs. `coll_sn` counts the calls of one kind (NCCL's source
has a number for each function). Read are v4.0, v5.0 and the marker lines of v4.3, after which
records have no header; all as public source and its documents show them, not seen from a live job.
A trace of torch 2.5 and later has the groups of its rank with their ranks in the job before its
events (`distributedInfo`, seen from torch itself); a writer that puts it after them is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unhang.jobs.diagnose.logs.group_numbers import MOST_MEMBERS, all_members
from unhang.jobs.flight import Flight

MOST_RECORDS, MOST_GROUPS = 200_000, 4096
ALONE = ("BROADCAST", "SCATTER")  # which all others may leave before a member has entered it
MESSAGES = ("SEND", "RECV")
_PART = re.compile(rb'"(header|metadata|coll_perf|p2p_perf)":\s{0,99}\{([^{}]{0,2000})')
_FIELD = re.compile(rb'"(\w{1,40})":\s{0,9}(?:"([^"\\]{1,128})"|(\d{1,18})\b)')
_GROUP = re.compile(rb'\{[^{}]{0,4000}"ranks":\s{0,9}\[[\d\s,]{1,1000000}\][^{}]{0,400}\}')
_IS_TRACE = re.compile(rb'\s{0,99}\{\s{0,99}"(?:schemaVersion|traceEvents)":')
_Call = tuple[str, int, str]  # communicator, its size, kind of operation


@dataclass(frozen=True)
class Ended:
    """The newest operation of one kind of a rank: its number; when it was written, in us; the
    process as (host, pid)."""

    seq: int
    moment: int
    process: tuple[object, object]


@dataclass
class Records:
    """What files have. ended: by call and rank in the communicator. groups: {(name, description,
    ranks of the job)}."""

    ended: dict[tuple[_Call, int], Ended] = field(default_factory=dict)
    groups: set[tuple[str, str, tuple[int, ...]]] = field(default_factory=set)
    head: dict[str, Any] = field(default_factory=dict)  # of the record that is read

    def note(self, text: bytes) -> None:
        """Adds what a block has."""
        if b'_perf"' in text:
            for found in _PART.finditer(text):
                kind, values = found[1].decode(), _fields(found[2])
                if kind == "header":
                    self.head = values
                elif kind == "metadata":
                    self.head = {**values, **self.head}
                else:
                    self._add(values, kind.removesuffix("_perf"))
        if (start := text.find(b'"pg_config"')) >= 0 and b'"distributedInfo"' in text[:start]:
            for found in _GROUP.finditer(text, start):
                self._add_group(found[0])

    def _add(self, own: Mapping[str, Any], kind: str) -> None:
        head, op, seq = self.head, own.get(kind), own.get(f"{kind}_sn")
        comm, rank, size = (head.get(name) for name in ("id", "rank", "n_ranks"))
        moment = head.get("dump_timestamp_us", 0)
        if not isinstance(comm, str) or not isinstance(op, str):
            return
        if not (isinstance(rank, int) and isinstance(size, int) and rank < size <= MOST_MEMBERS):
            return
        if isinstance(seq, int) and isinstance(moment, int) and len(self.ended) < MOST_RECORDS:
            new = Ended(seq, moment, (head.get("hostname"), head.get("pid")))
            _keep(self.ended, ((comm, size, op.upper()), rank), new)

    def _add_group(self, text: bytes) -> None:
        try:
            row = json.loads(text)
        except ValueError:
            return
        name, ranks = row.get("pg_name"), row["ranks"]
        if not isinstance(name, str) or not isinstance(ranks, list):
            return
        is_group = len({one for one in ranks if isinstance(one, int)}) == len(ranks) <= MOST_MEMBERS
        if is_group and len(self.groups) < MOST_GROUPS:
            self.groups.add((name, str(row.get("pg_desc") or ""), tuple(ranks)))


def is_trace(head: bytes) -> bool:
    """Whether a file begins as a profiler's trace."""
    has_parts = b'"traceEvents"' in head or b'"distributedInfo"' in head
    return has_parts and _IS_TRACE.match(head) is not None


def _fields(text: bytes) -> dict[str, Any]:
    return {
        one[1].decode(): int(one[3]) if one[3] else one[2].decode("utf-8", "replace")
        for one in _FIELD.finditer(text)
    }


def _keep(kept: dict[tuple[_Call, int], Ended], key: tuple[_Call, int], new: Ended) -> None:
    """Keeps the newer one, as the last."""
    kept[key] = max(kept.pop(key, new), new, key=lambda one: one.seq)


def joined(files: Iterable[Records]) -> Records:
    """All files as one."""
    whole = Records()
    for one in files:
        for key, ended in one.ended.items():
            _keep(whole.ended, key, ended)
        whole.groups |= one.groups
    return whole


def members_of(records: Records, world_size: int | None) -> set[tuple[int, ...]]:
    """The ranks of the job in each group: of traces; of Inspector where its largest communicator
    has all ranks, as far as is known, and numbers each process once."""
    world = max((size for (_, size, _), _ in records.ended), default=0)
    ranks: dict[tuple[object, object], set[int]] = {}
    for ((_, size, _), rank), one in records.ended.items():
        if size == world:
            ranks.setdefault(one.process, set()).add(rank)
    known: dict[tuple[str, int], dict[int, int]] = {}
    for ((comm, size, _), number), one in records.ended.items():
        if len(own := ranks.get(one.process, set())) == 1 and world_size in (None, world):
            known.setdefault((comm, size), {})[number] = min(own)
    shown = {
        all_members(numbers, size)
        for (_, size), numbers in known.items()
        if len(numbers) * 2 > size
    }
    return {*(ranks for *_, ranks in records.groups), *shown} - {()}


def with_groups(flight: Flight, records: Records) -> Flight:
    """The dump with the groups of its rank by traces, where it has no members itself."""
    if any(ranks for _, ranks in flight.groups.values()):
        return flight
    own = {name: (said, ranks) for name, said, ranks in records.groups if flight.rank in ranks}
    return replace(flight, groups=own)


def in_words(records: Records) -> str:
    """What ended last, and that nothing here shows who did not enter the next; "" without it."""
    if not records.ended:
        return ""
    calls: dict[_Call, dict[int, int]] = {}
    for (call, rank), one in records.ended.items():
        calls.setdefault(call, {})[rank] = one.seq
    comm, size, op = max(
        reversed(records.ended),
        key=lambda key: (key[0][2] not in MESSAGES, records.ended[key].moment),
    )[0]
    last = calls[comm, size, op]
    count = sum(seq == max(last.values()) for seq in last.values())
    said = (
        f"NCCL Inspector records completed operations: the last of communicator {comm} is {op}"
        f" #{max(last.values())} on {count} of {size} ranks; who did not enter the next is not in"
        " it"
    )
    return "; ".join([said, *_left_alone(calls)])


def _left_alone(calls: Mapping[_Call, Mapping[int, int]]) -> list[str]:
    """The rank whose number is below that of all others, in an operation that those can leave
    without it; none where its file is of an earlier moment: others have a later one of another."""
    early = {
        (comm, rank)
        for (comm, _, op), last in calls.items()
        if op not in (*ALONE, *MESSAGES)
        for newest in [max(last.values())]
        for rank, seq in last.items()
        if seq < newest
    }
    found = []
    for (comm, size, op), last in sorted(calls.items()):
        rank, *others = sorted(last, key=lambda one: last[one])
        is_one = op in ALONE and len(last) == size > 2 and last[rank] < last[others[0]]
        if is_one and (comm, rank) not in early:
            found.append(
                f"possible: rank {rank} of communicator {comm}, whose last {op} is"
                f" #{last[rank]}; all others ended #{last[others[0]]}, which they can leave"
                " without it"
            )
    return found[:1]
