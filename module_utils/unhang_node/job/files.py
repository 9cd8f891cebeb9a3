"""What files say of a running job: the end of its log, the kernel's log, and locks of extension
builds."""

from __future__ import annotations

import errno
import functools
import os

from ..base.named_tuple import NamedTuple
from ..base.parse.process_files import parse_flags
from ..base.section import Denied, Unread, read_section
from ..base.untrusted_files import open_regular
from ..facts.sections.extension_caches import CACHE, find_cache, mark_held
from ..facts.sections.faults import read_faults
from .finding import MORE
from .flights import read_flights
from .owners import Process, is_regular, read_as_owners
from .views import home_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.root import Root
    from ..base.section import SourcePiece
    from .owners import Piece
    from .views import View

TAIL_BYTES = 16 * 1024
MOST_LINES, MOST_LOGS = 60, 32  # of each log; of each owner
READ_S = 4.0
O_PATH = 0o10000000


class Log(NamedTuple):
    """path: its name in the view of the rank; file: (device, inode)."""

    path: str
    file: tuple[int, int]


def read_logs(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section log_tail: logs [{pids, path, size_bytes, changed_s, lines}], each file of an
    owner once; then flights."""
    logs: dict[int, list[Log]] = {}
    unread = Unread()
    started = {rank["pid"]: rank["started"] for rank in ctx.options["ranks"]}
    for pid, number in ((pid, number) for pid in started for number in (1, 2)):
        ctx.mark(f"look where descriptor {number} of {pid} leads")
        try:
            with Process(pid, started[pid]) as process:
                logs.setdefault(pid, []).append(log_of(process, number))
        except (OSError, ValueError) as problem:
            unread.of_error(f"logs[{pid}]", problem)
    yield "log_tail", {"logs": []}, unread.rows, MORE
    wanted = {pid: started[pid] for pid in logs}
    for fields, rows in read_as_owners(
        ctx, wanted, functools.partial(_tails, logs), "logs", READ_S
    ):
        yield "log_tail", fields, rows, MORE
    yield from read_flights(ctx)
    yield "log_tail", {}, []


def log_of(process: Process, number: int) -> Log:
    """The file behind a descriptor, which is not opened. Raises OSError; ValueError if it is none;
    Denied if the process has no right to read it by."""
    target, status = process.link(f"fd/{number}"), process.stat(f"fd/{number}")
    if not is_regular(status):
        raise ValueError(f"descriptor {number} is not a file but {target[:80]}")
    if parse_flags(process.text(f"fdinfo/{number}")) & O_PATH:
        raise Denied(
            f"descriptor {number} leads to {target[:80]} with O_PATH, which needs no right to read"
        )
    if not status.st_nlink:
        raise FileNotFoundError(
            errno.ENOENT, f"descriptor {number} leads to a file that was deleted", target[:80]
        )
    base = process.link("root").rstrip("/")
    return Log(
        target[len(base) :] if target.startswith(base + "/") else target,
        (status.st_dev, status.st_ino),
    )


def _tails(
    logs: dict[int, list[Log]], _ctx: Context, view: View, pids: list[int]
) -> Iterator[Piece]:
    """As the owner, by name: `program > log` leaves a descriptor that only writes, and the right to
    write is none to read."""
    pids_of: dict[Log, list[int]] = {}
    for pid in pids:
        for log in dict.fromkeys(logs[pid]):
            pids_of.setdefault(log, []).append(pid)
    for log, those in list(pids_of.items())[:MOST_LOGS]:
        unread = Unread()
        row = unread.attempt(f"logs[{those[0]}]", _tail, view.root, log)
        yield {"logs": [{"pids": those, **row}] if row else []}, unread.rows


def _tail(root: Root, log: Log) -> dict[str, Any]:
    descriptor = open_regular(root, log.path, follow=False)
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != log.file:
            raise Denied(f"{log.path} is another file than the one behind the descriptor")
        text = os.pread(descriptor, TAIL_BYTES, max(0, status.st_size - TAIL_BYTES)).decode(
            "utf-8", "replace"
        )
    finally:
        os.close(descriptor)
    lines = [line[:1000] for line in text.splitlines()[-MOST_LINES:]]
    return {
        "path": log.path,
        "size_bytes": status.st_size,
        "changed_s": round(status.st_mtime, 3),
        "lines": lines,
    }


def read_kernel_log(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section kernel_log, with the fields of the node's section faults."""
    yield read_section("kernel_log", read_faults, ctx.root, ctx.options["kernel_log"])


def read_locks(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section locks: caches, as the node's section torch has extension_caches, of the
    folders in which the ranks build extensions."""
    ranks = {rank["pid"]: rank for rank in ctx.options["ranks"]}
    wanted = {pid: rank["started"] for pid, rank in ranks.items()}
    for fields, unread in read_as_owners(
        ctx, wanted, functools.partial(_caches, ranks), "caches", READ_S
    ):
        for row in fields.get("caches", ()):
            keys = [tuple(key) for key in row.pop("keys")]
            if keys and not mark_held(row["locks"], keys):
                unread.append(
                    {
                        "field": f"caches[{row['path']}].locks",
                        "status": "denied",
                        "reason": "other users' open files need root",
                    }
                )
        yield "locks", fields, unread, MORE
    yield "locks", {"caches": []}, []


def _caches(
    ranks: dict[int, dict[str, Any]], ctx: Context, view: View, pids: list[int]
) -> Iterator[Piece]:
    """As the owner; with the files of the locks (device, inode) as keys."""
    home = home_of(view)
    for folder in dict.fromkeys(
        ranks[pid]["settings"].get("TORCH_EXTENSIONS_DIR") or (home + CACHE if home else None)
        for pid in pids
    ):
        unread = Unread()
        found = (
            find_cache(
                view.root, unread, view.mounts, folder, ranks[pids[0]]["user"], ctx.now_s, view.uid
            )
            if folder
            else None
        )
        yield {"caches": [{**found[0], "keys": found[1]}] if found else []}, unread.rows
