"""Dumps of torch's flight recorder, made from jobs that are played through: ranks launch their
operations in order, a GPU runs them in order, and an operation ends when all its members run it.

A fault changes what a rank calls or how far it gets; what must be concluded is written beside the
fault, not taken from the dump.
"""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

BORN_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Op:
    """group: key of the job's groups. peer: of a message. elements: of its input."""

    group: str
    name: str
    elements: int = 4
    peer: int | None = None


@dataclass
class Job:
    """groups: {key: ranks}. programs: {rank: its operations}. stops: {rank: operations that it
    launches}. stands: {rank: operations that its GPU ends}. broken: operations of a group that
    never end. ahead: operations that a host launches before its GPU ends them."""

    groups: dict[str, tuple[int, ...]]
    programs: dict[int, list[Op]]
    stops: dict[int, int] = field(default_factory=dict)
    stands: dict[int, int] = field(default_factory=dict)
    broken: tuple[str, int] | None = None
    ahead: int = 1


def job_of(tensor: int, pipeline: int, data: int, steps: int = 3, ahead: int = 1) -> Job:
    """A job of tensor × pipeline × data ranks, whose experts are spread over the data ranks: each
    step goes through the stages and back, and exchanges tokens of uneven number on the way."""
    world = tensor * pipeline * data
    place = {
        (stage, copy, part): (stage * data + copy) * tensor + part
        for stage, copy, part in itertools.product(range(pipeline), range(data), range(tensor))
    }
    groups = {"default_pg": tuple(range(world))}
    for (stage, copy, part), _rank in place.items():
        groups[f"tp{stage}.{copy}"] = tuple(place[stage, copy, one] for one in range(tensor))
        groups[f"dp{stage}.{part}"] = tuple(place[stage, one, part] for one in range(data))
        groups[f"ep{stage}.{part}"] = tuple(place[stage, one, part] for one in range(data))
        groups[f"pp{copy}.{part}"] = tuple(place[one, copy, part] for one in range(pipeline))
    programs: dict[int, list[Op]] = {rank: [] for rank in range(world)}
    for (stage, copy, part), rank in place.items():
        before = place.get((stage - 1, copy, part))
        after = place.get((stage + 1, copy, part))
        pipe, turn = f"pp{copy}.{part}", []
        turn += [Op(pipe, "recv", 8, before)] if before is not None else []
        turn += [Op(f"tp{stage}.{copy}", "all_reduce", 16)]
        turn += [Op(f"ep{stage}.{part}", "all_to_all", 5 + rank)]
        turn += (
            [Op(pipe, "send", 8, after), Op(pipe, "recv", 8, after)] if after is not None else []
        )
        turn += [Op(f"tp{stage}.{copy}", "all_reduce", 32)]
        turn += [Op(pipe, "send", 8, before)] if before is not None else []
        turn += [Op(f"dp{stage}.{part}", "_reduce_scatter_base", 64)]
        turn += [Op(f"dp{stage}.{part}", "all_gather", 3 + rank)]
        turn += [Op("default_pg", "all_reduce", 1)]
        programs[rank] = turn * steps
    return Job(groups, programs, ahead=ahead)


def place_of(job: Job, rank: int, name: str, group: str = "", step: int = 1) -> int:
    """Where a rank calls an operation in a step (from 0)."""
    places = [
        place
        for place, op in enumerate(job.programs[rank])
        if op.name == name and op.group.startswith(group)
    ]
    of_a_step = len(places) // 3
    return places[of_a_step * step]


@dataclass(frozen=True)
class Played:
    """{rank: operations launched}, {rank: operations ended}."""

    launched: dict[int, int]
    ended: dict[int, int]


def play(job: Job, most: int = 1 << 30) -> Played:
    """Until nothing moves, or this many operations have ended."""
    numbers = {rank: list(_numbers(ops)) for rank, ops in job.programs.items()}
    ended = dict.fromkeys(job.programs, 0)
    while most > 0:
        launched = {rank: _launched(job, rank, ended[rank]) for rank in ended}
        running = {
            rank: (job.programs[rank][place], numbers[rank][place])
            for rank, place in ended.items()
            if place < launched[rank] and place < job.stands.get(rank, 1 << 30)
        }
        done = next((ranks for ranks in _ready(job, running)), ())
        if not done:
            break
        most -= 1
        for rank in done:
            ended[rank] += 1
    return Played({rank: _launched(job, rank, ended[rank]) for rank in ended}, ended)


def _launched(job: Job, rank: int, ended: int) -> int:
    return min(ended + job.ahead, len(job.programs[rank]), job.stops.get(rank, 1 << 30))


def _numbers(ops: Sequence[Op]) -> Iterator[int]:
    """The number of each operation: collectives of a group, messages of a group."""
    counts: Counter[tuple[str, bool]] = Counter()
    for op in ops:
        counts[op.group, op.peer is not None] += 1
        yield counts[op.group, op.peer is not None]


def _ready(job: Job, running: Mapping[int, tuple[Op, int]]) -> Iterator[tuple[int, ...]]:
    for rank, (op, number) in running.items():
        if (op.group, number) == job.broken:
            continue
        if op.peer is None:
            members = job.groups[op.group]
            others = [running.get(one) for one in members]
            same = [one for one in others if one and one[0].group == op.group and one[1] == number]
            is_uneven = op.name in ("all_to_all", "all_gather")
            calls = {(one[0].name, None if is_uneven else one[0].elements) for one in same}
            if len(same) == len(members) and len(calls) == 1 and same[0][0].peer is None:
                yield members
        elif op.name == "send" and op.peer in running:
            other = running[op.peer][0]
            if (other.name, other.peer, other.group) == ("recv", rank, op.group):
                yield rank, op.peer


def dumps_of(
    job: Job, played: Played, *, timing: bool = False, active: bool = False, ring: int = 2000
) -> dict[int, dict[str, Any]]:
    """{rank: its dump}. timing: with TORCH_NCCL_ENABLE_TIMING, so that started kernels are known.
    active: only entries that are not completed. ring: entries that the recorder keeps."""
    names = {key: str(number) for number, key in enumerate(job.groups)}
    dumps = {}
    for rank, ops in job.programs.items():
        own = [key for key, ranks in job.groups.items() if rank in ranks]
        entries = []
        status = {key: [-1, -1] for key in own}
        for place, (op, number) in enumerate(
            zip(ops[: played.launched[rank]], _numbers(ops), strict=False)
        ):
            is_done = place < played.ended[rank]
            status[op.group] = [number, number if is_done else status[op.group][1]]
            runs = timing and place == played.ended[rank] and place < job.stands.get(rank, 1 << 30)
            entries.append(
                _entry(job, rank, op, number, place, names[op.group], own.index(op.group))
                | {
                    "state": "completed" if is_done else "started" if runs else "scheduled",
                    "retired": is_done,  # by the watchdog, within a tenth of a second
                }
            )
        kept = [one for one in entries if not active or one["state"] != "completed"][-ring:]
        dumps[rank] = {
            "version": "2.10",
            "pg_config": {
                names[key]: {"name": names[key], "desc": key.rstrip("0123456789."),
                             "ranks": str(list(job.groups[key]))}
                for key in own
            },
            "pg_status": {
                str(place): {"last_enqueued_collective": status[key][0],
                             "last_started_collective": -1,
                             "last_completed_collective": status[key][1]}
                for place, key in enumerate(own)
            },
            "entries": kept,
        }  # fmt: skip
    return dumps


def _entry(
    job: Job, rank: int, op: Op, number: int, place: int, name: str, pg_id: int
) -> dict[str, Any]:
    called = op.name
    if op.peer is not None:
        ranks = job.groups[op.group]
        arrow = "->" if op.name == "send" else "<-"
        called = f"{op.name} {ranks.index(rank)}{arrow}{ranks.index(op.peer)}"
    is_message = op.peer is not None
    return {
        "record_id": place, "pg_id": pg_id,
        "process_group": (name, op.group.rstrip("0123456789.")),
        "collective_seq_id": 0 if is_message else number,
        "p2p_seq_id": number if is_message else 0, "op_id": number,
        "profiling_name": f"nccl:{called}", "time_created_ns": BORN_NS + place * 1_000_000,
        "input_sizes": [[op.elements]], "input_dtypes": ["Float"],
        "output_sizes": [[op.elements]], "output_dtypes": ["Float"],
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": False, "timeout_ms": 600_000, "is_p2p": is_message,
        "frames": [
            {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/x.py", "line": 3},
            {"name": "train", "filename": "/job/train.py", "line": 40 + place},
        ],
    }  # fmt: skip


def changed(job: Job, rank: int, place: int, **fields: Any) -> None:
    """Another operation, size or peer of one call."""
    job.programs[rank][place] = replace(job.programs[rank][place], **fields)


def as_pickle(dump: Mapping[str, Any]) -> bytes:
    return pickle.dumps(dict(dump), 2)


def as_json(dump: Mapping[str, Any]) -> bytes:
    """As torch's dump_json writes it: numbers of the state as texts, no stacks."""
    entries = [
        {name: value for name, value in one.items() if name != "frames"} for one in dump["entries"]
    ]
    status = {
        key: {name: str(value) for name, value in one.items()}
        for key, one in dump["pg_status"].items()
    }
    return json.dumps({**dump, "entries": entries, "pg_status": status}, sort_keys=True).encode()
