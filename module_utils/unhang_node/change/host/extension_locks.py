"""Removes stale locks of torch's extension builds, and no other locks."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...base.root import Root
from ...base.section import Unread
from ...facts.sections.extension_caches import held_files, read_cache


def read_locks(paths: Iterable[str], now_s: float) -> tuple[list[str], list[tuple[str, str]]]:
    """([path of a stale lock], [(path of another lock, why it is skipped)]) in the caches at
    `paths`."""
    stale, skipped, unread = [], [], Unread()
    for path in paths:
        row = read_cache(Root(), unread, (), path.rstrip("/"), None, now_s)
        for lock in row["locks"] if row else ():
            if lock["stale"]:
                stale.append(lock["path"])
            else:
                skipped.append(
                    (
                        lock["path"],
                        "a process holds it"
                        if lock["held"]
                        else "who holds it could not be seen; run as root",
                    )
                )
    skipped.extend(
        (row["field"], row["reason"]) for row in unread.rows if not row["field"].endswith(".locks")
    )
    return stale, skipped


def remove_lock(path: str) -> bool:
    """True if the lock was removed. It is checked again just before, because a build may have begun
    meanwhile. Raises OSError."""
    # a user's link must not make root remove another file
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.stat("lock", dir_fd=folder, follow_symlinks=False)
        held, complete = held_files(frozenset([(status.st_dev, status.st_ino)]), "/proc")
        if held or not complete:
            return False
        os.unlink("lock", dir_fd=folder)
        return True
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
