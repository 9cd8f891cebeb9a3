"""The answer of a look at a running job: its first screen and its short form. Values in, values
out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from unhang.core.text import counted, listed, visible
from unhang.core.verdict.answer import JobAnswer, fact_row, failure_row
from unhang.core.verdict.ends import FROZEN, STOPPED
from unhang.core.verdict.job import EVEN, GONE, HALTED, HUNG, RUNNING, SLOW, UNKNOWN
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.screen import FAULTS, VerdictScreen, filled, host_name
from unhang.core.verdict.suspect import Suspect
from unhang.jobs.inspect.inspection import Inspection, Rank
from unhang.jobs.inspect.slow import BEHIND, STARVED, THROTTLED, WORKS

PLACES_ON_SCREEN, SUSPECTS_ON_SCREEN = 2, 2
_CONNECT = re.compile(r"\bnc -vz (\S+) (\d+)")
# (command, what its answer means), by what is known of the first suspect
_OF_A_RANK = {
    "ended": (
        FAULTS,
        "a killed process or an Xid: why it ended; none: the end of its log; then end the job, the"
        " others only wait",
    ),
    FROZEN: (
        "docker ps --filter status=paused",
        "a paused container: docker unpause; none: the control group that the line above names",
    ),
    STOPPED: (
        "grep -e State -e TracerPid /proc/{pid}/status",
        "T without a tracer: kill -CONT lets it go on; t: the debugger that TracerPid names",
    ),
    "kernel": (
        "sudo cat /proc/{pid}/stack; mount | grep -e nfs -e lustre -e fuse",
        "a file system in its stack: that mount; the driver: dmesg -T there",
    ),
    "worker": (
        "py-spy dump --locals --pid {pid}",
        "as the job's user or root: where the worker is, and its item",
    ),
    "alive": (
        "py-spy dump --pid {pid}",
        "as the job's user or root: all its threads, and the line that it is in",
    ),
}
_OF_A_SLOW_RANK = {
    BEHIND: (
        "py-spy dump --pid {pid}",
        "as the job's user or root, some times: the line in which it is mostly",
    ),
    STARVED: (
        "taskset -pc {pid}; ps -eLo psr,pid,pcpu,stat,comm --sort=-pcpu | head -40",
        "the processors that the rank may use, and who else runs there",
    ),
    THROTTLED: (
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
        "which slowdown is active, and the limits that it follows from",
    ),
    WORKS: (
        "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv",
        "another process on its GPU; none: the rank has more work than the others",
    ),
}
_ELSEWHERE = ("unhang inspect --host {host}", "the rank that is waited for is on a node not seen")
_CONNECTS = (
    "nc -vz -w 5 {address} {port}",
    "no answer: firewall, interface, or the other node's part has not started; an answer: its log",
)
_PATHS = (
    "nvidia-smi nvlink -s; ibstat",
    "a link or port that is down; unhang smoke --isolate later",
)
_LINKS = (
    f"nvidia-smi nvlink -s; {FAULTS}",
    "an inactive link or an Xid: the machine; none: the code",
)
# sudo's own PATH has no programs of a user's environment
_AS_ROOT = (
    "sudo $(command -v unhang) inspect --pid {pid}",
    "as root it reads what was denied here; for the job's user: sysctl kernel.yama.ptrace_scope=0",
)
_AGAIN = ("unhang inspect --gap 30", "two looks 30 s apart distinguish a long step from a hang")
_AGAIN_SLOW = ("unhang inspect --slow", "a slow rank is reported again; another one is not")
_WATCH = ("unhang watch --pid {pid}", "reports when it makes no progress, and looks then")


def answer_of(inspection: Inspection, by: str = "inspect") -> JobAnswer:
    """The answer of a look. by: who looked, inspect or watch."""
    suspects, certainty = inspection.suspects, certainty_of(inspection) or "possible"
    return JobAnswer(
        by,
        inspection.state,
        _screen(inspection),
        None,
        [failure_row(one.why, one.rank, one.host) for one in suspects],
        list(_waiting(inspection)),
        [
            {
                "cause": one.cause,
                "title": one.why,
                "certainty": "possible" if one.blind else certainty,
                "owner": None,
                "where": [part for part in (one.host, one.gpu) if part],
                "lines": [],
                "remedy": one.next,
            }
            for one in suspects
        ],
        list(_facts(inspection)),
        [
            {"what": row.host, "kind": "look at a node", "lines": None}
            for row in inspection.hosts
            if not row.problem
        ],
        [
            *(
                {"what": f"{row.what} on {', '.join(row.hosts)}",
                 "why": f"{row.status}: {row.why}"}
                for row in inspection.unread
            ),
            *(
                {"what": row.host, "why": row.problem}
                for row in inspection.hosts
                if row.problem
            ),
        ],
    )  # fmt: skip


def _screen(inspection: Inspection) -> VerdictScreen:
    """The verdict, who and where, and the command to paste."""
    suspects = inspection.suspects
    host, command, tells = _next(inspection)
    return VerdictScreen(
        verdict_of(inspection),
        certainty_of(inspection),
        (
            *recorded_lines(inspection), *_also(suspects), *_stands(inspection),
            *filter(None, _not_read(inspection)),
        ),
        advice=tuple(
            f"what to do: {one.next}"
            for one in suspects[:1]
            if not one.next.startswith(command)
        ),
        next_host=host, next_command=command, next_tells=tells,
        more="-v: where each rank is, why, and what could not be read",
    )  # fmt: skip


def recorded_lines(inspection: Inspection) -> list[str]:
    """What the dumps of the flight recorder add to the verdict, in one line."""
    row = inspection.recorded
    if not row or row.beside == "alone":  # its ranks are the suspects
        return []
    word = "agrees" if row.beside == "agrees" else "differs"
    return [f"torch's flight recorder {word}: {visible(row.says, 600)}"]


def verdict_of(inspection: Inspection) -> str:
    """hung: rank 1 on n2: it sleeps in ..."""
    state = inspection.state
    word = state if state in (HUNG, UNKNOWN, RUNNING, SLOW, EVEN) else f"not hung so far, {state}"
    return f"{word}: {visible(inspection.headline, 1500)}"


def certainty_of(inspection: Inspection) -> str:
    """sure: what was observed (ended, stopped, behind by RAS's own count); likely: what follows
    from stacks; possible: a hint; "" where nobody is accused."""
    if not inspection.suspects:
        return "likely" if inspection.state == HUNG else ""
    first = inspection.suspects[0]
    if inspection.state == SLOW:
        return "sure" if first.phase in (BEHIND, STARVED, THROTTLED) else "likely"
    if inspection.state != HUNG or first.blind:
        return "possible"
    states = {row.state for row in _rows_of(inspection, first)}
    lags = inspection.ras.lags if inspection.ras else ()
    counted_behind = any(first.rank in lag.behind for lag in lags)
    observed = (
        first.phase in ("ended", FROZEN, STOPPED) or states.intersection(GONE) or counted_behind
    )
    return "sure" if observed else "likely"


def _also(suspects: Sequence[Suspect]) -> list[str]:
    """The other suspects, as far as there is room."""
    lines = []
    for one in suspects[1:SUSPECTS_ON_SCREEN]:
        who = f"rank {one.rank}" if one.rank is not None else "a process"
        on = f" on {one.host}" if one.host else ""
        lines.append(f"also {who}{on}: {one.why}")
    more = len(suspects) - SUSPECTS_ON_SCREEN
    return [*lines, *([f"and {counted(more, 'more rank')} reported"] if more > 0 else [])]


def how_many(inspection: Inspection) -> str:
    """2 ranks; 1 of 2 ranks; 1 process without a rank."""
    ranks, world = (
        sum(row.rank is not None for row in inspection.ranks),
        inspection.world_size or 0,
    )
    if inspection.ranks and not ranks:
        return f"{counted(len(inspection.ranks), 'process', 'processes')} without a rank"
    return f"{ranks} of {counted(world, 'rank')}" if ranks < world else counted(ranks, "rank")


def _stands(inspection: Inspection) -> list[str]:
    """How many ranks were seen where, then the places in which most of them are."""
    hosts = [visible(row.host, 80) for row in inspection.hosts]
    places = _ranks_by_place(inspection.ranks)
    largest = sorted(places.items(), key=lambda item: -len(item[1]))[:PLACES_ON_SCREEN]
    return [
        f"seen: {how_many(inspection)} on {listed(hosts, 4)}",
        *(
            f"rank{'' if len(ranks) == 1 else 's'} {fold_ranks(ranks)[:60]}: {activity} in {where}"
            for (activity, where), ranks in largest
        ),
    ]


def _not_read(inspection: Inspection) -> list[str]:
    rows = [f"{row.what} ({visible(row.status, 40)})" for row in inspection.unread]
    silent = [row.host for row in inspection.hosts if row.problem]
    return [
        f"not read: {listed([*dict.fromkeys(rows)], 5)}" if rows else "",
        f"no answer from {listed([visible(one, 80) for one in silent], 4)}" if silent else "",
    ]


def _rows_of(inspection: Inspection, who: Suspect) -> list[Rank]:
    return [
        row
        for row in inspection.ranks
        if row.rank == who.rank and (not who.host or row.host == who.host)
    ]


def _next(inspection: Inspection) -> tuple[str, str, str]:
    """(host, command, what its answer means)."""
    first = inspection.suspects[0] if inspection.suspects else None
    if inspection.state == SLOW and first:
        template, meaning = _OF_A_SLOW_RANK[first.phase]
        of_it = {"pid": [str(row.pid) for row in _rows_of(inspection, first)]}
        return host_name(first.host), filled(template, of_it) or _AGAIN_SLOW[0], meaning
    if inspection.state == UNKNOWN and inspection.pace and inspection.pace.moved:
        return "", *_AGAIN_SLOW
    if inspection.state not in (HUNG, UNKNOWN):
        pids = [str(row.pid) for row in inspection.ranks]
        return ("", filled(_WATCH[0], {"pid": pids}) or "unhang watch", _WATCH[1])
    if host_and_command := _as_root(inspection):
        return *host_and_command, _AS_ROOT[1]
    if first is None or (first.rank is None and first.phase == "collective"):
        paths = _PATHS if len(inspection.hosts) > 1 else _LINKS
        if inspection.state == HUNG and any(row.gpu for row in inspection.ranks):
            return "", *paths
        return "", *_AGAIN
    host = host_name(first.host)
    rows = _rows_of(inspection, first)
    if dialled := _CONNECT.search(first.next):
        values = {"address": [dialled[1].strip("[]")], "host": [dialled[1]], "port": [dialled[2]]}
        if command := filled(_CONNECTS[0], values):
            return host, command, _CONNECTS[1]
    if first.phase in ("ended", FROZEN):
        return host, *_OF_A_RANK[first.phase]
    if not rows and host and first.rank is not None:
        return "", filled(_ELSEWHERE[0], {"host": [host]}) or "unhang inspect", _ELSEWHERE[1]
    state = rows[0].state if rows else ""
    kind = _kind(first.phase, state, bool(rows and rows[0].where), first.next)
    workers = [str(row.worker.pid) for row in rows if row.worker]
    is_of_worker = bool(workers) and state not in ("D", *HALTED) and kind != "ended"
    command, tells = _OF_A_RANK["worker" if is_of_worker and kind == "alive" else kind]
    pid = {"pid": workers if is_of_worker else [str(row.pid) for row in rows]}
    return host, filled(command, pid) or "unhang inspect", tells


def _as_root(inspection: Inspection) -> tuple[str, str] | None:
    """(host, command) that reads what was denied; None where it would not change the verdict."""
    denied = [row for row in inspection.unread if row.status == "denied" and row.helps]
    hosts = [host for row in denied if row.what in ("stacks", "ranks", "ras") for host in row.hosts]
    if inspection.state != UNKNOWN or not hosts:
        return None
    pids = [str(row.pid) for row in inspection.ranks if row.host == hosts[0]]
    command = filled(_AS_ROOT[0], {"pid": pids})
    return (host_name(hosts[0]), command) if command else None


def _kind(phase: str, state: str, has_stack: bool, then: str) -> str:
    """The row of _OF_A_RANK. state: of the process; ? if it was not read."""
    if state in GONE:
        return "ended"
    if phase == STOPPED or state in HALTED or (state == "?" and not has_stack):
        return STOPPED
    return "kernel" if state == "D" or "/stack as root" in then else "alive"


def _waiting(inspection: Inspection) -> Iterator[dict[str, Any]]:
    """Ranks that are where nobody is accused, those of one place as one."""
    accused = {(one.host, one.rank) for one in inspection.suspects}
    others = [row for row in inspection.ranks if (row.host, row.rank) not in accused]
    for (activity, where), ranks in _ranks_by_place(others).items() if accused else ():
        text = f"ranks {fold_ranks(ranks)}: {activity} in {where}"
        yield failure_row(text, None, None)


def _ranks_by_place(rows: Sequence[Rank]) -> dict[tuple[str, str], list[int]]:
    """{(activity, where): ranks}."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row.rank is not None and row.where:
            found.setdefault((row.activity or "", row.where), []).append(row.rank)
    return found


def _facts(inspection: Inspection) -> Iterator[dict[str, Any]]:
    ranks = [row.rank for row in inspection.ranks if row.rank is not None]
    ras = inspection.ras
    for name, value in (
        ("world size", inspection.world_size),
        ("ranks seen", fold_ranks(ranks)),
        ("NCCL", ras.version if ras else None),
        ("shown to hang by", ", ".join(inspection.sources.stands)),
        ("shown to work by", ", ".join(inspection.sources.works)),
    ):
        if value:
            yield fact_row(name, value)
