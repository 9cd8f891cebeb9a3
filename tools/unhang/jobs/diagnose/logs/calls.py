"""NCCL's own trace of calls (NCCL_DEBUG_SUBSYS=COLL): the last call of each rank, the rank that
stopped first, and ranks with a different call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from unhang.core.text import counted
from unhang.core.verdict.waiting import COMPLETED, LAUNCHED, Group, Step, WaitedFor, waited_for
from unhang.jobs.diagnose.logs.reading import Block

MARK = b": opCount "
MOST_PROCESSES = 100_000
ROOM = 24  # of " comm 0x..."
LEFT_OUT = b"\x01"  # replaces a call's arguments; no anchor contains it
_CALL = re.compile(
    rb"(?<![\w.-])(?P<process>[\w.-]{1,250}:\d{1,10}):\d{1,10} \[\d{1,6}\] NCCL INFO"
    rb" (?P<op>\w{1,32}): opCount (?P<number>[0-9a-f]{1,16}) "
    rb"sendbuff \S{1,20} recvbuff \S{1,20} (?:acc \S{1,20} )?count (?P<count>\d{1,19}) datatype"
    rb" (?P<datatype>\d{1,4}) op \d{1,4} root -?\d{1,7} "
    rb"comm (?P<comm>0x[0-9a-f]{1,16}) \[nranks=(?P<nranks>\d{1,7})\]"
)
_REST = re.compile(MARK + rb"[^\n]*")
_COMMUNICATOR = re.compile(
    r"(?<![\w.-])(?P<process>[\w.-]{1,250}:\d{1,10}):\d{1,10} \[\d{1,6}\] NCCL INFO .{0,60}?comm"
    r" (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,7}) "
    r"nranks (?P<nranks>\d{1,7})(?:.{0,80}commId (?P<group>0x[0-9a-f]{1,16}))?"
)
_PAIRWISE = ("Send", "Recv")


@dataclass(frozen=True)
class Call:
    """The latest collective that a process called on a communicator. number: counts from 0, the
    same on all ranks of a communicator."""

    process: str
    comm: str
    op: str
    number: int
    count: int
    datatype: int
    nranks: int
    file: str
    line: int
    text: str

    @property
    def place(self) -> dict[str, Any]:
        """Its line."""
        return {"file": self.file, "line": self.line, "text": self.text}


def note_calls(block: Block, file: str, calls: MutableMapping[tuple[str, str], Call]) -> None:
    """Records the latest call of each process and communicator."""
    newest: dict[tuple[bytes, bytes], int] = {}
    for index, line in enumerate(block.lines):
        who, mark, what = line.partition(MARK)
        if mark:
            newest[who, what[what.find(b" comm ") :][:ROOM]] = index
    for index in sorted(newest.values()):
        if not (found := _CALL.search(block.lines[index])):
            continue
        op, key = (
            found["op"].decode(),
            (found["process"].decode("utf-8", "replace"), found["comm"].decode()),
        )
        if op not in _PAIRWISE and (key in calls or len(calls) < MOST_PROCESSES):
            numbers = (int(found["count"]), int(found["datatype"]), int(found["nranks"]))
            calls[key] = Call(
                *key,
                op,
                int(found["number"], 16),
                *numbers,
                file,
                block.number(index),
                found.group().decode("utf-8", "replace"),
            )


def without_calls(text: bytes) -> bytes:
    """The lines without the arguments of calls, whose addresses make every line different."""
    return _REST.sub(LEFT_OUT, text) if MARK in text else text


class Traced(NamedTuple):
    """What the trace shows. answer: a rank is its number in the largest communicator of its
    process; one below 0 is a process of which no line shows it. calls: (rank, group) -> its latest
    call."""

    answer: WaitedFor
    calls: Mapping[tuple[int, str], Call]

    def who(self, ranks: Sequence[int], group: str) -> str:
        """rank 2 (after AllReduce 11), or its process."""
        calls = ((rank, self.calls[rank, group]) for rank in ranks)
        return ", ".join(
            f"{f'rank {rank}' if rank >= 0 else call.process} (after {call.op} {call.number})"
            for rank, call in calls
        )


def traced_calls(calls: Iterable[Call], set_up: Iterable[str]) -> Traced:
    """set_up: lines that show the communicator of each rank. Only the latest call of a rank in a
    communicator is known: an older one than that of others has ended."""
    known = {
        (found["process"], found["comm"]): found
        for text in set_up
        if (found := _COMMUNICATOR.search(text))
    }
    by_size = sorted(known.values(), key=lambda found: int(found["nranks"]))
    numbers = {found["process"]: int(found["rank"]) for found in by_size}
    groups: dict[tuple[str, int], list[tuple[int, Call]]] = {}
    for call in calls:
        found = known.get((call.process, call.comm))
        rank = numbers.setdefault(call.process, -1 - len(numbers))
        group = (found["group"] if found else "") or ""
        groups.setdefault((group, call.nranks), []).append((rank, call))
    latest: dict[tuple[int, str], Call] = {}
    named, steps = [], []
    for (group, nranks), members in sorted(groups.items()):
        ranks = tuple(sorted(rank for rank, _ in members))
        if not 1 < len({*ranks}) == len(ranks) <= nranks:
            continue  # these cannot be ranks of one communicator
        named.append(Group(f"communicator {group}".strip(), ranks, nranks))
        newest = max(call.number for _, call in members)
        for rank, call in members:
            latest[rank, named[-1].name] = call
            what = f"of {counted(call.count, 'element')}, datatype {call.datatype}"
            state = LAUNCHED if call.number == newest else COMPLETED
            one = (rank, named[-1].name, call.op, call.number, state, what, "", call.file)
            steps.append(Step(*one, call.line))
    return Traced(waited_for(named, steps), latest)
