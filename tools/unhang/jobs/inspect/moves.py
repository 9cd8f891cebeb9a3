"""Whether a rank moves, from two looks at it: one function for `inspect` and `watch`, live and
recorded. Values in, values out.

A row of a look has what the rank and the processes below it did so far (work_of in
unhang_node/job/process_table.py); rows that were recorded before it had that have parts of it. What
other jobs of the node do is in no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from unhang.core.verdict.job import CHILDREN, COMPILES, DATA, FILES, SOCKETS
from unhang.jobs.inspect.evidence import ProcessRow
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


def at_rest(pairs: Iterable[tuple[ProcessRow, ProcessRow, float]]) -> dict[str, float]:
    """Bytes a second of that rank of a job which carried least, by kind. pairs: of each rank two
    looks and the seconds between them. Where all move, nothing is far beyond that."""
    rest: dict[str, float] = {}
    for pair in pairs:
        for name, rate in _rates(*pair).items():
            rest[name] = min(rate, rest.get(name, rate))
    return rest


def moves(
    before: ProcessRow, now: ProcessRow, seconds: float, rest: Mapping[str, float]
) -> dict[str, str]:
    """{sign: in words} of what moved between two looks at one rank, `seconds` apart; {} when
    nothing did. rest: by at_rest, of the ranks of its job."""
    rates = _rates(before, now, seconds)
    woke = now.state in ("S", "D") and (rose(before, now, "switches") or 0) > 0
    beyond = [
        name
        for name, rate in rates.items()
        if rate >= (_beyond_rest(rest, name) if woke else LEAST_BYTES_S)
    ]
    calls = (rose(before, now, "calls") or 0.0) / seconds
    arrived = arrives(now, rest) if ARRIVED in beyond or now.arrived_below else ""
    signs = {
        CHILDREN: _children_s(before, now) > CHILDREN_CORES * seconds,
        FILES: DISK in beyond,
        DATA: CALLED in beyond and rates[CALLED] >= SIGN_OF_LIFE_BYTES * calls,
        SOCKETS: arrived or CARRIED in beyond,
        COMPILES: now.compilers or any(child.command in COMPILERS for child in now.below()),
    }
    return {
        sign: arrived if arrived and sign == SOCKETS else sign
        for sign, holds in signs.items()
        if holds
    }


def may_have_written(pairs: Iterable[tuple[object, object]], grew_bytes: float) -> bool:
    """Whether a log changed, and by no more than its ranks and those below them carried by calls,
    where that is known, with a launcher's label before each line. pairs: of each two looks."""
    carried = [rose(*pair, CALLED) for pair in pairs]
    is_known = carried and None not in carried
    return grew_bytes != 0 and not (is_known and LABELLED * sum(filter(None, carried)) < grew_bytes)


def arrives(now: ProcessRow, rest: Mapping[str, float]) -> str:
    """40 KB/s arrive from 10.2.0.9: at one socket, where that is far beyond what comes to a rank at
    rest; else ""."""
    rate, peer = now.arrived_bytes_s or 0.0, now.arrived_from or ""
    if rate < _beyond_rest(rest, ARRIVED):
        return ""
    return f"{rate / 1e3:.0f} KB/s arrive" + (f" from {peer}" if ADDRESS.fullmatch(peer) else "")


def _beyond_rest(rest: Mapping[str, float], name: str) -> float:
    at_rest_s = max(rest.get(name, LEAST_BYTES_S), SIGN_OF_LIFE_BYTES)
    return min(LEAST_BYTES_S, BEYOND_REST * at_rest_s)


def _rates(before: ProcessRow, now: ProcessRow, seconds: float) -> dict[str, float]:
    """Bytes a second by kind, without those that a look lacks. What a rank alone read and wrote is
    what there is in older rows: its look has them under io, its sample beside the others."""
    then, after = (row.io or row for row in (before, now))
    own = sum(rose(then, after, name) or 0.0 for name in ("read_bytes", "write_bytes"))
    disk, called = (rose(before, now, name) or 0.0 for name in (DISK, CALLED))
    rates = {
        DISK: max(own, disk) / seconds,
        CALLED: called / seconds,
        CARRIED: now.socket_bytes_s,
        ARRIVED: now.arrived_bytes_s,
    }
    return {name: rate for name, rate in rates.items() if rate is not None}


def _children_s(before: ProcessRow, now: ProcessRow) -> float:
    if now.children_cpu_s is not None:
        return rose(before, now, "children_cpu_s") or 0.0
    then = {row.pid: row.cpu_s for row in before.below()}
    return sum(row.cpu_s - then.get(row.pid, 0.0) for row in now.below())


def rose(before: object, now: object, name: str) -> float | None:
    """By how much a number rose between two looks, None where one of them lacks it."""
    then, after = (getattr(row, name, None) for row in (before, now))
    return None if then is None or after is None else after - then
