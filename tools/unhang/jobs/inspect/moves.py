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

from unhang_node.job.compilers import COMPILERS

CHILDREN, FILES, DATA, SOCKETS, COMPILES = (
    "its children compute",
    "it reads or writes files",
    "it or a child of it reads or writes data",
    "data arrives or leaves by a socket",
    "it compiles",
)
BYTES = (FILES, DATA, SOCKETS)
CHILDREN_CORES = 0.2
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
    woke = now.get("state") in ("S", "D") and _more(before, now, "switches") > 0
    beyond = [
        name
        for name, rate in rates.items()
        if rate >= (_beyond_rest(rest, name) if woke else LEAST_BYTES_S)
    ]
    calls = _more(before, now, "calls") / seconds
    arrived = arrives(now, rest) if ARRIVED in beyond or now.get("arrived_below") is True else ""
    signs = {
        CHILDREN: _children_s(before, now) > CHILDREN_CORES * seconds,
        FILES: DISK in beyond,
        DATA: CALLED in beyond and rates[CALLED] >= SIGN_OF_LIFE_BYTES * calls,
        SOCKETS: arrived or CARRIED in beyond,
        COMPILES: bool(_number(now.get("compilers"))) or _has_compiler(now),
    }
    return {
        sign: arrived if arrived and sign == SOCKETS else sign
        for sign, holds in signs.items()
        if holds
    }


def arrives(now: Look, rest: Mapping[str, float]) -> str:
    """40 KB/s arrive from 10.2.0.9: at one socket, where that is far beyond what comes to a rank at
    rest; else ""."""
    rate, peer = _number(now.get(ARRIVED)), str(now.get("arrived_from"))
    if rate < _beyond_rest(rest, ARRIVED):
        return ""
    return f"{rate / 1e3:.0f} KB/s arrive" + (f" from {peer}" if ADDRESS.fullmatch(peer) else "")


def _beyond_rest(rest: Mapping[str, float], name: str) -> float:
    at_rest_s = max(rest.get(name, LEAST_BYTES_S), SIGN_OF_LIFE_BYTES)
    return min(LEAST_BYTES_S, BEYOND_REST * at_rest_s)


def _rates(before: Look, now: Look, seconds: float) -> dict[str, float]:
    """Bytes a second by kind, without those that a look lacks. What a rank alone read and wrote is
    what there is in older rows: its look has them under io, its sample beside the others."""
    then, after = (
        row["io"] if isinstance(row.get("io"), Mapping) else row for row in (before, now)
    )
    own = sum(_more(then, after, name) for name in ("read_bytes", "write_bytes"))
    more = {DISK: max(own, _more(before, now, DISK)), CALLED: _more(before, now, CALLED)}
    known = {name: _number(now[name]) for name in (CARRIED, ARRIVED) if _is_number(now.get(name))}
    return {**{name: count / max(0.1, seconds) for name, count in more.items()}, **known}


def _children_s(before: Look, now: Look) -> float:
    if _is_number(now.get("children_cpu_s")):
        return _more(before, now, "children_cpu_s")
    then = {str(row.get("pid")): _number(row.get("cpu_s")) for row in _children(before)}
    return sum(
        _number(row.get("cpu_s")) - then.get(str(row.get("pid")), 0.0) for row in _children(now)
    )


def _has_compiler(row: Mapping[str, Any]) -> bool:
    return any(str(child.get("command")) in COMPILERS for child in _children(row))


def _children(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = row.get("children")  # a sample has their number
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _more(before: Look, now: Look, name: str) -> float:
    """By how much a number rose, 0 where a look lacks it."""
    if not (_is_number(before.get(name)) and _is_number(now.get(name))):
        return 0.0
    return _number(now[name]) - _number(before[name])


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_one and abs(value) < 1e18


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else 0.0
