"""Whether a rank moves, from two looks at it: one function for `inspect` and `watch`, live and
recorded. Values in, values out.

A row of a look has what the rank and the processes below it did so far (work_of in
unhang_node/job/process_table.py); rows that were recorded before it had that have parts of it. What
other jobs of the node do is in no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from unhang.core.verdict.job import CHILDREN, COMPILES, DATA, FILES, SOCKETS
from unhang_node.base.parse.values import as_map, as_maps, number_of
from unhang_node.job.compilers import COMPILERS

CHILDREN_CORES = 0.2
LABELLED = 2  # srun --label and torchrun --tee may double a short line
# A call that carries data has more, and more of it comes in a second: a store that all ranks ask
# for a sign of life carries 100 bytes in each.
SIGN_OF_LIFE_BYTES = 512
BEYOND_REST = 16  # times what comes to a rank at rest
# Where no rank is at rest; and of what threads in the background carry, for RAS, monitors and logs
# do so in a rank that hangs.
LEAST_BYTES_S = 64 * 1024
DISK, CALLED, CARRIED, ARRIVED = "disk_bytes", "call_bytes", "socket_bytes_s", "arrived_bytes_s"
ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")
Look = Mapping[str, Any]


def at_rest(pairs: Iterable[tuple[Look, Look, float]]) -> dict[str, float]:
    """Bytes a second of that rank of a job which carried least, by kind. pairs: of each rank two
    looks and the seconds between them. Where all move, nothing is far beyond that."""
    rest: dict[str, float] = {}
    for pair in pairs:
        for name, rate in _rates(*pair).items():
            rest[name] = min(rate, rest.get(name, rate))
    return rest


def moves(before: Look, now: Look, seconds: float, rest: Mapping[str, float]) -> dict[str, str]:
    """{sign: in words} of what moved between two looks at one rank, `seconds` apart; {} when
    nothing did. rest: by at_rest, of the ranks of its job."""
    seconds, rates = max(0.1, seconds), _rates(before, now, seconds)
    woke = now.get("state") in ("S", "D") and (rose(before, now, "switches") or 0) > 0
    beyond = [
        name
        for name, rate in rates.items()
        if rate >= (_beyond_rest(rest, name) if woke else LEAST_BYTES_S)
    ]
    calls = (rose(before, now, "calls") or 0.0) / seconds
    arrived = arrives(now, rest) if ARRIVED in beyond or now.get("arrived_below") is True else ""
    children = as_maps(now.get("children"))  # a sample has their number
    signs = {
        CHILDREN: _children_s(before, now) > CHILDREN_CORES * seconds,
        FILES: DISK in beyond,
        DATA: CALLED in beyond and rates[CALLED] >= SIGN_OF_LIFE_BYTES * calls,
        SOCKETS: arrived or CARRIED in beyond,
        COMPILES: number_of(now.get("compilers"))
        or any(child.get("command") in COMPILERS for child in children),
    }
    return {
        sign: arrived if arrived and sign == SOCKETS else sign
        for sign, holds in signs.items()
        if holds
    }


def may_have_written(pairs: Iterable[tuple[Look, Look]], grew_bytes: float) -> bool:
    """Whether a log changed, and by no more than its ranks and those below them carried by calls,
    where that is known, with a launcher's label before each line. pairs: of each two looks."""
    carried = [rose(*pair, CALLED) for pair in pairs]
    is_known = carried and None not in carried
    return grew_bytes != 0 and not (is_known and LABELLED * sum(filter(None, carried)) < grew_bytes)


def arrives(now: Look, rest: Mapping[str, float]) -> str:
    """40 KB/s arrive from 10.2.0.9: at one socket, where that is far beyond what comes to a rank at
    rest; else ""."""
    rate, peer = number_of(now.get(ARRIVED)), str(now.get("arrived_from"))
    if rate < _beyond_rest(rest, ARRIVED):
        return ""
    return f"{rate / 1e3:.0f} KB/s arrive" + (f" from {peer}" if ADDRESS.fullmatch(peer) else "")


def _beyond_rest(rest: Mapping[str, float], name: str) -> float:
    at_rest_s = max(rest.get(name, LEAST_BYTES_S), SIGN_OF_LIFE_BYTES)
    return min(LEAST_BYTES_S, BEYOND_REST * at_rest_s)


def _rates(before: Look, now: Look, seconds: float) -> dict[str, float]:
    """Bytes a second by kind, without those that a look lacks. What a rank alone read and wrote is
    what there is in older rows: its look has them under io, its sample beside the others."""
    then, after = (as_map(row.get("io")) or row for row in (before, now))
    own = sum(rose(then, after, name) or 0.0 for name in ("read_bytes", "write_bytes"))
    disk, called = (rose(before, now, name) or 0.0 for name in (DISK, CALLED))
    known = {name: number_of(now[name]) for name in (CARRIED, ARRIVED) if now.get(name) is not None}
    return {DISK: max(own, disk) / max(0.1, seconds), CALLED: called / max(0.1, seconds), **known}


def _children_s(before: Look, now: Look) -> float:
    if now.get("children_cpu_s") is not None:
        return rose(before, now, "children_cpu_s") or 0.0
    then = {row.get("pid"): row for row in as_maps(before.get("children"))}
    return sum(
        rose(then.get(row.get("pid"), {"cpu_s": 0}), row, "cpu_s") or 0.0
        for row in as_maps(now.get("children"))
    )


def rose(before: Look, now: Look, name: str) -> float | None:
    """By how much a number rose between two looks, None where one of them lacks it."""
    found = before.get(name), now.get(name)
    return None if None in found else number_of(found[1]) - number_of(found[0])
