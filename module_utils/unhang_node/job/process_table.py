"""All processes of this node at one moment: state, parent, start and processor time."""

from __future__ import annotations

import os

from ..facts.sections.reading import kernel_threads, text_if_there
from .compilers import COMPILERS
from .parse.process_state import IO_FIELDS, Stat, parse_io, parse_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from ..base.root import Root

TICKS = os.sysconf("SC_CLK_TCK")
MOST_READ = 256


def read_stats(root: Root) -> dict[int, Stat]:
    """{pid: Stat} of all processes but the kernel's own. Raises OSError when they cannot be
    listed."""
    return read_stats_again(root, {}, ())


def read_stats_again(
    root: Root, before: dict[int, Stat], watched: Collection[int]
) -> dict[int, Stat]:
    """The table of some seconds later: the watched processes and new ones are read, of the others
    only whether they are still there."""
    found, of_the_kernel = {}, kernel_threads(root)
    for name in root.names("/proc"):
        if name.isdigit() and name not in of_the_kernel:
            pid = int(name)
            stat = before[pid] if pid in before and pid not in watched else stat_of(root, pid)
            if stat:
                found[pid] = stat
    return found


def stat_of(root: Root, pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        return parse_stat(root.text(f"/proc/{pid}/stat", 4096))
    except OSError:
        return None


def ancestors(stats: dict[int, Stat], pid: int) -> list[int]:
    """The process itself, its parent, and so on."""
    found: list[int] = []
    while pid in stats and pid not in found:
        found.append(pid)
        pid = stats[pid].parent
    return found


def work_of(root: Root, stats: dict[int, Stat], pid: int, below: list[int]) -> dict[str, Any]:
    """What a process and those below it have done so far; it never becomes less while they run or
    end, because the kernel adds what a child did to its parent.

    children_cpu_s: without its own; disk_bytes: read and written by the disk; call_bytes, calls:
    by calls, also from a cache, a pipe or a socket, None where they are hidden; compilers: how many
    of those below are one now.
    """
    ticks = stats[pid].waited_ticks
    ticks += sum(stats[one].cpu_ticks + stats[one].waited_ticks for one in below)
    read = [parse_io(text_if_there(root, f"/proc/{one}/io")) for one in (pid, *below[:MOST_READ])]
    sums = {name: sum(io.get(name, 0) for io in read) for name in IO_FIELDS}
    return {
        "children_cpu_s": ticks / TICKS,
        "disk_bytes": sums["read_bytes"] + sums["write_bytes"],
        "call_bytes": sums["rchar"] + sums["wchar"] if read[0] else None,
        "calls": sums["syscr"] + sums["syscw"],
        "compilers": sum(stats[one].command in COMPILERS for one in below),
    }


def descendants(stats: dict[int, Stat], pids: Collection[int]) -> dict[int, list[int]]:
    """{pid: the processes below it} of these."""
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    found: dict[int, list[int]] = {}
    for top in pids:
        found[top], todo = [], list(children.get(top, ()))
        while todo:
            pid = todo.pop()
            if pid != top and pid not in found[top]:
                found[top].append(pid)
                todo += children.get(pid, ())
    return found


def tops(below: dict[int, list[int]]) -> dict[int, int]:
    """{process below a rank: the rank's}, of what descendants() found."""
    return {pid: top for top, pids in below.items() for pid in pids}
