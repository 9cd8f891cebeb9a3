"""Where each rank is: Python's functions by py-spy where it is installed and allowed, else what
the kernel knows.

py-spy reads the process from outside (--nonblocking: it is not paused). Root runs only one that
users cannot write, or that of the environment which it runs, as the rank's user, with the right to
read processes alone.
"""

from __future__ import annotations

import functools
import os
import stat as stat_bits
import sys
import threading
import time

from ..base.process import FOLDERS, run_process
from ..facts.sections.reading import text_if_there
from .finding import MORE
from .looks import started_of, wchan_of
from .owners import CAP_SYS_PTRACE, read_as_owners
from .parse.spy_stacks import parse_spy
from .process_table import descendants, read_stats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.section import SourcePiece, UnreadRow
    from .owners import Piece
    from .parse.process_state import Stat
    from .views import View

SPY = "py-spy"
SPY_S = 3.0
TRIES = 3  # a stack that moves while it is read cannot be read; another try finds it at rest
CHILDREN_OF_EACH = 2
AT_ONCE = 16
DUMPS_S = SPY_S * TRIES + 1
HOW_TO_GET = "install py-spy (pip install py-spy) in a folder of PATH, or name it with --py-spy"


def read_stacks(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section stacks: spy (path or null), processes [{pid, of, way, threads, wchan,
    kernel}]; with py-spy the ranks again in processes_2."""
    ranks, begun = ctx.options["ranks"], time.monotonic()
    spy, why = find_spy(ctx.options["py_spy"], [row["pid"] for row in ranks])
    stats = read_stats(ctx.root)
    looked = started_of(ranks, stats)
    wanted = _processes(stats, [row["pid"] for row in ranks])
    wanted.update((pid, pid) for pid in looked if pid in stats)  # engines too
    yield (
        "stacks",
        {"spy": spy},
        [] if spy else [{"field": "spy", "status": "absent", "reason": why}],
        MORE,
    )
    for row, unread in _looked_at(ctx, spy, {pid: stats[pid].started for pid in wanted}, wanted):
        yield "stacks", {"processes": [row]}, unread, MORE
    if spy:
        wait_s = max(0.0, ctx.options["gap_s"] - (time.monotonic() - begun))
        ctx.mark("the time between two looks", wait_s + 1)
        time.sleep(wait_s)
        for row, _ in _looked_at(
            ctx, spy, {pid: stats[pid].started for pid, of in wanted.items() if pid == of}, wanted
        ):
            yield "stacks", {"processes_2": [row]}, [], MORE
    yield "stacks", {}, []


def find_spy(named: str | None, pids: list[int]) -> tuple[str | None, str]:
    """(path of py-spy, "") or (None, why not)."""
    own = (
        []
        if os.geteuid() == 0
        else [os.path.dirname(place) for place in (_exe_of(pid) for pid in pids) if place]
    )
    folders = [
        *os.environ.get("PATH", "").split(os.pathsep),
        *FOLDERS.split(os.pathsep),
        os.path.dirname(sys.executable),
        *own,
    ]
    places = (
        [named]
        if named
        else [os.path.join(folder, SPY) for folder in dict.fromkeys(folders) if folder]
    )
    for place in places:
        if os.access(place, os.X_OK) and os.path.isfile(place):
            if os.geteuid() == 0 and not named and not _may_be_roots(place):
                continue
            return place, ""
    return None, f"py-spy is not {'at ' + named if named else 'on PATH'}; {HOW_TO_GET}"


def _exe_of(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def _may_be_roots(place: str) -> bool:
    """Whether root may run it: nobody else can write it, or it is of the environment whose code
    root runs now, as with sudo /home/me/.local/bin/unhang."""
    if os.path.dirname(place) == os.path.dirname(sys.executable) and sys.prefix != sys.base_prefix:
        return True
    status = os.stat(place)
    return status.st_uid == 0 and not status.st_mode & (stat_bits.S_IWGRP | stat_bits.S_IWOTH)


def _processes(stats: dict[int, Stat], pids: list[int]) -> dict[int, int]:
    """{pid: its rank's pid}: each rank, then the first children of each, such as workers of a
    loader."""
    below = descendants(stats, pids)
    children = {
        pid: [other for other in sorted(below[pid]) if stats[other].state != "Z"][:CHILDREN_OF_EACH]
        for pid in pids
    }
    return {
        **{other: pid for pid, others in children.items() for other in others},
        **{pid: pid for pid in pids if pid in stats},
    }


def _looked_at(
    ctx: Context, spy: str | None, wanted: dict[int, int], of: dict[int, int]
) -> Iterator[tuple[dict[str, Any], list[UnreadRow]]]:
    """A row of each process of `wanted` ({pid: started}), ranks first. py-spy opens the files that
    a process has mapped: it runs as the process's user."""
    answers: dict[int, tuple[list[dict[str, Any]] | None, str, str]] = {}
    for fields, unread in (
        read_as_owners(
            ctx, wanted, functools.partial(_dumps, spy, of), "processes", DUMPS_S, CAP_SYS_PTRACE
        )
        if spy
        else ()
    ):
        for pid, threads, why in fields.get("dumps", ()):
            answers[pid] = (
                threads,
                "denied" if "ermission" in why or "permitted" in why else "error",
                why,
            )
        for row in unread:
            answers.setdefault(
                int(row["field"][len("processes[") : -1]), (None, row["status"], row["reason"])
            )
    for pid in sorted(wanted, key=lambda pid: pid != of[pid]):
        yield _row(
            ctx,
            pid,
            of[pid],
            *answers.get(pid, (None, "timeout", "py-spy did not end in time" if spy else "")),
        )


def _dumps(
    spy: str, of: dict[int, int], _ctx: Context, _view: View, pids: list[int]
) -> Iterator[Piece]:
    """As the owner, AT_ONCE at a time: [pid, threads or None, why not]. of: the rank of each
    process."""
    for start in range(0, len(pids), AT_ONCE):
        answers: dict[int, tuple[list[dict[str, Any]] | None, str]] = {}

        def dump(
            pid: int, answers: dict[int, tuple[list[dict[str, Any]] | None, str]] = answers
        ) -> None:
            answers[pid] = _dump(spy, pid, is_worker=of[pid] != pid)

        threads = [
            threading.Thread(target=dump, args=(pid,), daemon=True)
            for pid in pids[start : start + AT_ONCE]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SPY_S * TRIES)
        yield (
            {
                "dumps": [
                    [pid, *answers[pid]] for pid in pids[start : start + AT_ONCE] if pid in answers
                ]
            },
            [],
        )


def _dump(spy: str, pid: int, *, is_worker: bool) -> tuple[list[dict[str, Any]] | None, str]:
    """The threads of a process; of a worker with its item, where its variables can be read."""
    why = ""
    for number in range(TRIES):
        more = ["--locals"] if is_worker and number == 0 else []
        done = run_process(
            [spy, "dump", "--json", "--full-filenames", "--nonblocking", *more, "--pid", str(pid)],
            SPY_S,
            limit_bytes=4 << 20,
        )
        try:
            if done.code == 0:
                threads = parse_spy(done.stdout)
                if any(thread["frames"] for thread in threads):
                    return threads, ""
                why = "py-spy found no Python frame"
            else:
                why = (
                    f"py-spy did not end within {SPY_S:g} s"
                    if done.timed_out
                    else done.last_words[-200:]
                )
        except ValueError as problem:
            why = str(problem)
        if "ermission" in why or "not permitted" in why:
            return (
                None,
                (f"{why}; run it as root, or as the job's user with kernel.yama.ptrace_scope=0"),
            )
    return None, why


def _row(
    ctx: Context, pid: int, of: int, threads: list[dict[str, Any]] | None, status: str, why: str
) -> tuple[dict[str, Any], list[UnreadRow]]:
    kernel = [
        line.strip()[:120]
        for line in text_if_there(ctx.root, f"/proc/{pid}/stack").splitlines()[:24]
    ]
    row = {
        "pid": pid,
        "of": of,
        "way": "py-spy" if threads else "kernel",
        "threads": threads or [],
        "wchan": wchan_of(ctx.root, f"/proc/{pid}"),
    }
    return {**row, "kernel": kernel}, (
        [{"field": f"processes[{pid}]", "status": status, "reason": why}] if why else []
    )
