"""What files say of a running job: the end of its log, the kernel's log, and locks of extension builds."""

from __future__ import annotations

import os

from ..base.section import Unread, read_section
from ..facts.sections.extension_caches import CACHE, mark_held, read_cache
from ..facts.sections.faults import read_faults
from .finding import MORE
from .flights import read_flights
from .views import user_of, view_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.root import Root
    from ..base.section import SourcePiece
    from .views import View

TAIL_BYTES = 16 * 1024
MOST_LINES, MOST_LOGS = 60, 32


def read_logs(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section log_tail: logs [{pids, path, size_bytes, changed_s, lines}], each file once; then flights."""
    logs: dict[tuple[int, int], dict[str, Any]] = {}
    unread = Unread()
    for rank in ctx.options["ranks"]:
        for number in (1, 2):
            try:
                key, row = _log(ctx.root, rank["pid"], number)
            except (OSError, ValueError) as problem:
                unread.of_error(f"logs[{rank['pid']}]", problem)
                continue
            if key in logs or len(logs) < MOST_LOGS:
                pids = logs.setdefault(key, row)["pids"]
                if rank["pid"] not in pids:
                    pids.append(rank["pid"])
    yield "log_tail", {"logs": list(logs.values())}, unread.rows, MORE
    yield from read_flights(ctx)
    yield "log_tail", {}, []


def _log(root: Root, pid: int, number: int) -> tuple[tuple[int, int], dict[str, Any]]:
    place = root.candidates(f"/proc/{pid}/fd/{number}")[0]
    root.watch(f"read the log of {pid}")
    target = os.readlink(place)
    if not os.path.isfile(place):
        raise ValueError(f"descriptor {number} is no file but {target[:80]}")
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        text = os.pread(descriptor, TAIL_BYTES, max(0, status.st_size - TAIL_BYTES)).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
    lines = [line[:1000] for line in text.splitlines()[-MOST_LINES:]]
    row = {"pids": [pid], "path": target, "size_bytes": status.st_size, "changed_s": round(status.st_mtime, 3), "lines": lines}
    return (status.st_dev, status.st_ino), row


def read_kernel_log(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section kernel_log, with the fields of the node's section faults."""
    yield read_section("kernel_log", read_faults, ctx.root, ctx.options["kernel_log"])


def read_locks(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section locks: caches, as the node's section torch has extension_caches, of the folders in which the ranks build extensions."""
    views: dict[str | None, View] = {}
    wanted: dict[tuple[int, str], tuple[View, str | None, int]] = {}
    for rank in ctx.options["ranks"]:
        try:
            view = view_of(ctx.root, rank["pid"], views)
            user, uid = user_of(ctx.root, rank["pid"], view)
        except OSError:
            continue  # it has ended, or is another user's: the section ranks says so
        folder = rank["settings"].get("TORCH_EXTENSIONS_DIR") or (user.home + CACHE if user and user.home.startswith("/") else None)
        if folder:
            wanted.setdefault((id(view), folder), (view, rank["user"], uid))
    for (_, folder), (view, name, uid) in wanted.items():
        yield *read_section("locks", _cache, view.root, view, folder, name, ctx.now_s, uid), MORE
    yield "locks", {} if wanted else {"caches": []}, []


def _cache(root: Root, unread: Unread, view: View, folder: str, user: str | None, now_s: float, owner: int) -> dict[str, Any]:
    found = read_cache(root, unread, view.mounts, folder, user, now_s, owner=owner)
    if found and found["locks"] and not root.is_live:  # of a container: its locks are held by processes of this node
        unread.rows[:] = [row for row in unread.rows if not row["field"].endswith(".locks")]
        states = [os.lstat(root.place(row["path"])) for row in found["locks"]]
        mark_held(found["locks"], [(status.st_dev, status.st_ino) for status in states])
    return {"caches": [found] if found else []}
