"""Where each rank stands: Python's functions by py-spy where it is installed and allowed, else what the kernel knows.

py-spy reads the process from outside (--nonblocking: it is not paused). As root only a py-spy that users cannot write is run.
"""

from __future__ import annotations

import os
import stat as stat_bits
import sys
import threading
import time

from ..base.process import FOLDERS, run_process
from ..facts.sections.reading import text_if_there
from .finding import MORE
from .looks import wchan_of
from .parse.spy_stacks import parse_spy
from .process_table import ancestors, read_stats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.section import SourcePiece, UnreadRow

SPY = "py-spy"
SPY_S = 3.0
TRIES = 3  # a stack that moves while it is read cannot be read; another try finds it at rest
CHILDREN_OF_EACH = 2
AT_ONCE = 16
HOW_TO_GET = "install py-spy (pip install py-spy) in a folder of PATH, or name it with --py-spy"


def read_stacks(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section stacks: spy (path or null), processes [{pid, of, way, threads, wchan, kernel}]; with py-spy the ranks again in processes_2."""
    ranks, begun = ctx.options["ranks"], time.monotonic()
    spy, why = find_spy(ctx.options["py_spy"], [row["pid"] for row in ranks])
    wanted = _processes(ctx, [row["pid"] for row in ranks])
    yield "stacks", {"spy": spy}, [] if spy else [{"field": "spy", "status": "absent", "reason": why}], MORE
    for start in range(0, len(wanted), AT_ONCE):
        batch = wanted[start : start + AT_ONCE]
        ctx.mark(f"py-spy of processes {batch[0][0]} and others", SPY_S * TRIES + 1)
        for row, unread in _batch(ctx, spy, batch):
            yield "stacks", {"processes": [row]}, unread, MORE
    if spy:
        wait_s = max(0.0, ctx.options["gap_s"] - (time.monotonic() - begun))
        ctx.mark("the time between two looks", wait_s + 1)
        time.sleep(wait_s)
        own = [one for one in wanted if one[0] == one[1]][: 2 * AT_ONCE]
        for start in range(0, len(own), AT_ONCE):
            ctx.mark("py-spy, the second look", SPY_S * TRIES + 1)
            for row, _ in _batch(ctx, spy, own[start : start + AT_ONCE]):
                yield "stacks", {"processes_2": [row]}, [], MORE
    yield "stacks", {}, []


def find_spy(named: str | None, pids: list[int]) -> tuple[str | None, str]:
    """(path of py-spy, "") or (None, why not)."""
    own = [] if os.geteuid() == 0 else [os.path.dirname(place) for place in (_exe_of(pid) for pid in pids) if place]
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *FOLDERS.split(os.pathsep), os.path.dirname(sys.executable), *own]
    places = [named] if named else [os.path.join(folder, SPY) for folder in dict.fromkeys(folders) if folder]
    for place in places:
        if os.access(place, os.X_OK) and os.path.isfile(place):
            if os.geteuid() == 0 and not named and not _only_root_writes(place):
                continue
            return place, ""
    return None, f"no py-spy {'at ' + named if named else 'on PATH'}; {HOW_TO_GET}"


def _exe_of(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def _only_root_writes(place: str) -> bool:
    status = os.stat(place)
    return status.st_uid == 0 and not status.st_mode & (stat_bits.S_IWGRP | stat_bits.S_IWOTH)


def _processes(ctx: Context, pids: list[int]) -> list[tuple[int, int]]:
    """[(pid, rank's pid)]: each rank, then the first children of each, such as workers of a loader."""
    stats = read_stats(ctx.root)
    children = []
    for pid in pids:
        below = [other for other in sorted(stats) if other != pid and pid in ancestors(stats, other) and stats[other].state != "Z"]
        children += [(other, pid) for other in below[:CHILDREN_OF_EACH]]
    return [*((pid, pid) for pid in pids if pid in stats), *children]


def _batch(ctx: Context, spy: str | None, batch: list[tuple[int, int]]) -> list[tuple[dict[str, Any], list[UnreadRow]]]:
    answers: dict[int, tuple[list[dict[str, Any]] | None, str]] = {}

    def dump(pid: int) -> None:
        answers[pid] = _dump(spy, pid) if spy else (None, "")

    threads = [threading.Thread(target=dump, args=(pid,), daemon=True) for pid, _ in batch]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SPY_S * TRIES)
    return [_row(ctx, pid, of, *answers.get(pid, (None, "py-spy did not end in time"))) for pid, of in batch]


def _dump(spy: str, pid: int) -> tuple[list[dict[str, Any]] | None, str]:
    why = ""
    for _ in range(TRIES):
        done = run_process([spy, "dump", "--json", "--full-filenames", "--nonblocking", "--pid", str(pid)], SPY_S, limit_bytes=4 << 20)
        try:
            if done.code == 0:
                threads = parse_spy(done.stdout)
                if any(thread["frames"] for thread in threads):
                    return threads, ""
                why = "py-spy found no Python frame"
            else:
                why = f"py-spy did not end within {SPY_S:g} s" if done.timed_out else done.last_words[-200:]
        except ValueError as problem:
            why = str(problem)
        if "ermission" in why or "not permitted" in why:
            return None, f"{why}; run it as the job's user with ptrace allowed (kernel.yama.ptrace_scope=0), or as root"
    return None, why


def _row(ctx: Context, pid: int, of: int, threads: list[dict[str, Any]] | None, why: str) -> tuple[dict[str, Any], list[UnreadRow]]:
    kernel = [line.strip()[:120] for line in text_if_there(ctx.root, f"/proc/{pid}/stack").splitlines()[:24]]
    row: dict[str, Any] = {
        "pid": pid,
        "of": of,
        "way": "py-spy" if threads else "kernel",
        "threads": threads or [],
        "wchan": wchan_of(ctx.root, f"/proc/{pid}"),
    }
    row["kernel"] = kernel
    refused = "denied" if "ermission" in why or "permitted" in why else "error"
    return row, [{"field": f"processes[{pid}]", "status": refused, "reason": why}] if why else []
