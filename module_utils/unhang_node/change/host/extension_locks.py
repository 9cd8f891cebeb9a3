"""Removes locks that builds of torch's extensions left behind, and no other."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...root import Root
from ...section import Unread
from ...sections.extension_caches import held_files, read_cache


def read_locks(paths: Iterable[str], now_s: float) -> tuple[list[str], list[tuple[str, str]]]:
    """([path of a lock that nobody holds], [(path, why it is skipped)]) of the caches at `paths`."""
    stale, skipped, unread = [], [], Unread()
    for path in paths:
        row = read_cache(Root(), unread, (), path.rstrip("/"), None, now_s)
        for lock in row["locks"] if row else ():
            if lock["stale"]:
                stale.append(lock["path"])
            else:
                skipped.append((lock["path"], "a process holds it" if lock["held"] else "who holds it could not be seen; run as root"))
    skipped.extend((row["field"], row["reason"]) for row in unread.rows if not row["field"].endswith(".locks"))
    return stale, skipped


def remove_lock(path: str) -> bool:
    """True when it was removed. Looked at once more right before: a build may have begun since. Raises OSError."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # a user must not lead root elsewhere by a link
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
