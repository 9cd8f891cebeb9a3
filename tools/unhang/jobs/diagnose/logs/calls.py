"""NCCL's own trace of calls (NCCL_DEBUG_SUBSYS=COLL): the last call of each rank, the rank that
stopped first, and ranks with a different call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.text import counted
from unhang.core.verdict.waiting import COMPLETED, LAUNCHED, Group, Step, waited_for
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


def compare_calls(calls: Iterable[Call], set_up: Iterable[str]) -> list[dict[str, Any]]:
    """[{group, nranks, number, op, file, line, text, ranks, behind, calls}] for each communicator
    with traces of several ranks. set_up: lines that show the communicator of each rank. A rank is
    its number in the largest communicator of its process, or host:pid if no line shows one. behind:
    [{rank: its last call}] of ranks whose latest call is older, awaited where the rank waits in no
    other communicator. calls: {call: [rank]} with the newest number, if the calls differ."""
    known = {
        (found["process"], found["comm"]): found
        for text in set_up
        if (found := _COMMUNICATOR.search(text))
    }
    names: dict[str, tuple[int, str]] = {}
    for (process, _), found in known.items():
        if int(found["nranks"]) > names.get(process, (0, ""))[0]:
            names[process] = (int(found["nranks"]), found["rank"])
    groups: dict[tuple[str, int], list[tuple[str, Call]]] = {}
    for call in calls:
        found = known.get((call.process, call.comm))
        group = found["group"] if found and found["group"] else ""
        groups.setdefault((group, call.nranks), []).append(
            (names[call.process][1] if call.process in names else call.process, call)
        )
    groups = {key: members for key, members in groups.items() if _is_one(key[1], members)}
    roots = _roots(groups)
    return [
        _compare(group, nranks, members, roots)
        for (group, nranks), members in sorted(groups.items())
    ]


def _roots(groups: Mapping[tuple[str, int], Sequence[tuple[str, Call]]]) -> set[str]:
    """The ranks that are behind somewhere and wait nowhere."""
    names = sorted({name for members in groups.values() for name, _ in members}, key=_order)
    number = {name: place for place, name in enumerate(names)}
    steps = []
    for key, members in groups.items():
        newest = max(call.number for _, call in members)
        for name, call in members:
            state = LAUNCHED if call.number == newest else COMPLETED
            steps.append(Step(number[name], str(key), call.op, call.number, state))
    members_of = [
        Group(str(key), tuple(number[name] for name, _ in members))
        for key, members in groups.items()
    ]
    return {names[rank] for rank in waited_for(members_of, steps).roots}


def _is_one(nranks: int, members: Sequence[tuple[str, Call]]) -> bool:
    """Whether these can be ranks of one communicator: not more than its size, and none twice."""
    names = [name for name, _ in members]
    return 1 < len(members) <= nranks and len(set(names)) == len(names)


def _compare(
    group: str, nranks: int, members: Sequence[tuple[str, Call]], roots: set[str]
) -> dict[str, Any]:
    newest = max((call for _, call in members), key=lambda call: call.number)
    behind = {name: call for name, call in members if call.number < newest.number}
    ahead = [(name, call) for name, call in members if name not in behind]
    by_call: dict[str, list[str]] = {}
    for name, call in ahead:
        by_call.setdefault(
            f"{call.op} of {counted(call.count, 'element')}, datatype {call.datatype}", []
        ).append(name)
    return {
        "group": group or None, "nranks": nranks, "number": newest.number, "op": newest.op,
        "file": newest.file, "line": newest.line, "text": newest.text,
        "ranks": sorted((name for name, _ in ahead), key=_order),
        "calls": by_call if len(by_call) > 1 else {},
        "behind": [
            {**_stopped(name, behind[name]), "awaited": name in roots}
            for name in sorted(behind, key=_order)[:64]
        ],
    }  # fmt: skip


def _stopped(name: str, call: Call) -> Mapping[str, Any]:
    return {
        "rank": name,
        "number": call.number,
        "op": call.op,
        "file": call.file,
        "line": call.line,
        "text": call.text,
    }


def _order(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (1 << 40, name)
