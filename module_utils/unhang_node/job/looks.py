"""What the kernel says of each rank, twice: state, processor time, I/O, children, sockets; and the
node's network counters."""

from __future__ import annotations

import os
import time

from ..base.section import Unread
from ..facts.sections.reading import text_if_there
from .finding import MORE, targets_of
from .parse.process_state import (
    parse_interfaces,
    parse_io,
    parse_sockets,
    parse_switches,
    parse_tracer,
)
from .process_table import TICKS, descendants, read_stats, stat_of, work_of
from .tcp_bytes import Carried
from .waits import wait_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.root import Root
    from ..base.section import SourcePiece
    from .parse.process_state import Stat

MOST_CHILDREN, MOST_THREADS, MOST_SOCKETS = 48, 1024, 64
NAP_S = 5.5  # who sleeps 5 s again and again is seen to wake up, whenever the looks begin
NAPS = ("23", "35", "101", "115", "230", "270")  # nanosleep and, before Python 3.11, select
# of a control group: where it may be mounted, and the file that freezes it when it has a 1
FREEZERS = {"": (("", "/unified"), "cgroup.freeze"),
            "freezer": (("/freezer",), "freezer.self_freezing")}  # fmt: skip
GONE, REUSED = "gone", "reused"
LOOKED_AT = (
    "cpu_s", "io", "wchan", "syscall", "tracer", "frozen", "children_cpu_s", "disk_bytes",
    "call_bytes", "calls", "compilers", "switches", "threads",
)  # fmt: skip


def read_proc_looks(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section proc: looks [{at_s, interfaces, ranks: [{pid, state, cpu_s, io, wchan,
    threads_blocked, children}]}], the two of them; engines have a row after the ranks."""
    began_s, begun = time.time(), time.monotonic()
    looked = started_of(ctx.options["ranks"], read_stats(ctx.root))
    carried, pids = Carried(ctx.root), [rank["pid"] for rank in ctx.options["ranks"]]
    switches: dict[int, int | None] = {}
    for number in (0, 1):
        # The second moment by the clock that no time server sets: rates between the looks decide
        # between asleep and at work.
        at_s, stats = began_s + time.monotonic() - begun, read_stats(ctx.root)
        rates = carried.rates(ctx.options["ranks"], descendants(stats, pids))
        naps = []
        for pid, started in looked.items():
            row = look_at(ctx.root, pid, started, stats)
            row.update(rates.get(pid, {}))
            if row["syscall"] in NAPS and row["switches"] == switches.get(pid):
                naps.append(row)
                continue
            switches[pid] = row["switches"]
            yield "proc", {f"ranks_{number + 1}": [row]}, [], MORE
        # at the moment of what the ranks wrote, with which its growth is compared
        logs = [log_of(ctx.root, rank["pid"]) for rank in ctx.options["ranks"]]
        if naps:
            wait_s = max(0.0, NAP_S - ctx.options["gap_s"])
            ctx.mark("the time in which a sleeper wakes up", wait_s + 1)
            time.sleep(wait_s)
        for row in naps:
            status = text_if_there(ctx.root, f"/proc/{row['pid']}/status")
            row["switches"] = parse_switches(status)
        yield "proc", {f"ranks_{number + 1}": naps}, [], MORE
        interfaces = parse_interfaces(text_if_there(ctx.root, "/proc/net/dev"))
        yield (
            "proc",
            {
                f"at_{number + 1}_s": round(at_s, 3),
                f"interfaces_{number + 1}": interfaces,
                f"log_bytes_{number + 1}": [log[1] if log else None for log in logs],
            },
            [],
            MORE,
        )
        if number == 0:
            ctx.mark("the time between two looks", ctx.options["gap_s"] + 1)
            time.sleep(ctx.options["gap_s"])
    yield "proc", {}, []


def frozen_by(root: Root, pid: int) -> str | None:
    """The control group that freezes a process, its own or one above; None where none does."""
    for line in text_if_there(root, f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        mounts, switch = FREEZERS.get(controllers, ((), ""))
        parts = path.rstrip("/").split("/")
        for mount in mounts:
            for depth in range(len(parts), 1, -1):
                folder = f"/sys/fs/cgroup{mount}{'/'.join(parts[:depth])}"
                if text_if_there(root, f"{folder}/{switch}").strip() == "1":
                    return folder
    return None


def started_of(ranks: list[dict[str, Any]], stats: dict[int, Stat]) -> dict[int, int]:
    """{process: its start} of ranks and of the engines whose workers they are."""
    engines = {row["engine"] for row in ranks if row.get("engine") in stats}
    return {
        **{row["pid"]: row["started"] for row in ranks},
        **{pid: stats[pid].started for pid in engines},
    }


def look_at(root: Root, pid: int, started: int, stats: dict[int, Stat]) -> dict[str, Any]:
    """One look at one process. state: as ps has it, or gone, or reused (the number belongs to
    another process now)."""
    stat = stat_of(root, pid)
    row: dict[str, Any] = dict.fromkeys(LOOKED_AT)
    row.update(pid=pid, state=GONE, threads_blocked=[], children=[])
    if stat is None or stat.started != started:
        row["state"] = REUSED if stat else GONE
        return row
    row.update(
        state=stat.state,
        cpu_s=stat.cpu_ticks / TICKS,
        io=parse_io(text_if_there(root, f"/proc/{pid}/io")) or None,
    )
    # of the main thread, as far as switches are concerned
    status = text_if_there(root, f"/proc/{pid}/status")
    row.update(
        wchan=wchan_of(root, f"/proc/{pid}"),
        frozen=frozen_by(root, pid),
        tracer=parse_tracer(status),
        switches=parse_switches(status),
    )
    row["syscall"] = text_if_there(root, f"/proc/{pid}/syscall").split(" ")[0].strip() or None
    row["threads"], row["threads_blocked"] = _blocked_threads(root, pid)
    below = sorted(descendants(stats, [pid])[pid])
    row["children"] = [_child(root, other, stats[other]) for other in below[:MOST_CHILDREN]]
    if pid in stats:
        row.update(work_of(root, stats, pid, below))
    return row


def wchan_of(root: Root, folder: str) -> str | None:
    """The kernel's function in which a thread waits; None while it runs, and where that is
    hidden."""
    try:
        name = root.text(folder + "/wchan", 256).strip("\0\n ")
    except OSError:
        return None
    return name if name not in ("", "0") else None


def _blocked_threads(root: Root, pid: int) -> tuple[int | None, list[dict[str, Any]]]:
    """(number of threads, those that wait in the kernel where no signal reaches them)."""
    try:
        names = root.names(f"/proc/{pid}/task")
    except OSError:
        return None, []
    blocked = []
    for name in names[:MOST_THREADS]:
        folder = f"/proc/{pid}/task/{name}"
        try:
            state = root.text(folder + "/stat", 1024).rpartition(")")[2].split()[:1]
        except OSError:
            continue
        if state == ["D"]:
            blocked.append({"tid": int(name), "wchan": wchan_of(root, folder)})
    return len(names), blocked[:16]


def _child(root: Root, pid: int, stat: Stat) -> dict[str, Any]:
    wchan = wchan_of(root, f"/proc/{pid}")
    return {
        "pid": pid,
        "command": stat.command,
        "state": stat.state,
        "cpu_s": stat.cpu_ticks / TICKS,
        "wchan": wchan,
    }


def log_of(root: Root, pid: int) -> tuple[str, int] | None:
    """(device:inode, size) of the file that a rank's standard output or error goes to, None where
    it goes elsewhere."""
    for number in (1, 2):
        try:
            place = root.candidates(f"/proc/{pid}/fd/{number}")[0]
            root.watch(f"stat of the log of {pid}")
            status = os.stat(place)
        except OSError:
            continue
        if os.path.isfile(place):
            return f"{status.st_dev}:{status.st_ino}", status.st_size
    return None


def read_sockets(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section sockets: ranks [{pid, sockets: [{state, local, remote}], wait}] of TCP; wait:
    for what its main thread waits, as wait_of has it."""
    stats = read_stats(ctx.root)
    for rank in ctx.options["ranks"]:
        pid = rank["pid"]
        inodes = {
            target[8:-1]
            for target in targets_of(ctx.root, pid).values()
            if target.startswith("socket:[")
        }
        found: dict[str, dict[str, str]] = {}
        for name in ("net/tcp", "net/tcp6"):
            table = text_if_there(ctx.root, f"/proc/{pid}/{name}", 8 << 20)
            found.update(parse_sockets(table, inodes))
        rows = sorted(found.values(), key=lambda row: (row["state"] != "SYN_SENT", row["state"]))
        unread = Unread()
        ctx.mark(f"read for what {pid} waits")
        wait = unread.attempt(f"ranks[{pid}].wait", _wait, ctx.root, rank, stats, found)
        row = {"pid": pid, "sockets": rows[:MOST_SOCKETS], "wait": wait}
        yield "sockets", {"ranks": [row]}, unread.rows, MORE
    yield "sockets", {}, []


def _wait(
    root: Root, rank: dict[str, Any], stats: dict[int, Stat], sockets: dict[str, dict[str, str]]
) -> dict[str, Any] | None:
    place = wchan_of(root, f"/proc/{rank['pid']}")
    return wait_of(root, rank["pid"], rank["started"], place, stats, sockets)
