"""Whether a rank moves, from two looks at it: one function for `inspect` and `watch`, live and
recorded. Values in, values out.

A row of a look has what the rank and the processes below it did so far (work_of in
unhang_node/job/process_table.py); rows that were recorded before it had that have parts of it. What
other jobs of the node do is in no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang_node.job.process_table import COMPILERS

CHILDREN, FILES, DATA, SOCKETS, COMPILES = (
    "its children compute",
    "it reads or writes files",
    "it or a child of it reads or writes data",
    "data arrives or leaves by a socket",
    "it compiles",
)
BYTES = (FILES, DATA, SOCKETS)
CHILDREN_CORES = 0.2
LEAST_BYTES_S = 64 * 1024  # read or written; less is a log line or a heartbeat
# of a call that carries data: a store that all ranks ask for a sign of life carries 100 in each
LEAST_BYTES_OF_CALL = 512


def moves(before: Mapping[str, Any], now: Mapping[str, Any], seconds: float) -> list[str]:
    """What moved between two looks at one rank, `seconds` apart; [] when nothing did."""
    seconds = max(0.1, seconds)
    least = LEAST_BYTES_S * seconds
    called, calls = _more(before, now, "call_bytes"), _more(before, now, "calls")
    signs = {
        CHILDREN: _children_s(before, now) > CHILDREN_CORES * seconds,
        FILES: max(_disk_bytes(before, now), _more(before, now, "disk_bytes")) >= least,
        DATA: called >= max(least, LEAST_BYTES_OF_CALL * calls),
        SOCKETS: _number(now.get("socket_bytes_s")) >= LEAST_BYTES_S,
        COMPILES: bool(_number(now.get("compilers"))) or _has_compiler(now),
    }
    return [sign for sign, holds in signs.items() if holds]


def _children_s(before: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    if _is_number(now.get("children_cpu_s")):
        return _more(before, now, "children_cpu_s")
    then = {str(row.get("pid")): _number(row.get("cpu_s")) for row in _children(before)}
    return sum(
        _number(row.get("cpu_s")) - then.get(str(row.get("pid")), 0.0) for row in _children(now)
    )


def _disk_bytes(before: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    """Of the rank alone; its look has them under io, its sample beside the others."""
    then, after = (
        row["io"] if isinstance(row.get("io"), Mapping) else row for row in (before, now)
    )
    return sum(_more(then, after, name) for name in ("read_bytes", "write_bytes"))


def _has_compiler(row: Mapping[str, Any]) -> bool:
    return any(str(child.get("command")) in COMPILERS for child in _children(row))


def _children(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = row.get("children")  # a sample has their number
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _more(before: Mapping[str, Any], now: Mapping[str, Any], name: str) -> float:
    """By how much a number rose, 0 where a look lacks it."""
    if not (_is_number(before.get(name)) and _is_number(now.get(name))):
        return 0.0
    return _number(now[name]) - _number(before[name])


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_one and abs(value) < 1e18


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else 0.0
