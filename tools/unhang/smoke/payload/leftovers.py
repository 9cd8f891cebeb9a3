"""Removes folders of runs whose launcher or agent was killed before it could do so.

An agent records in its folders how long they may be needed, and locks them while it runs. The next
agent of the same user removes those that are past this time and not locked: a launcher that still
waits for their results gave up long before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time

PREFIX = "unhang-smoke-"
RECORD = "keep-until"
MARGIN_S = 3600.0  # after a run's own deadline: no launcher waits that long for results
UNTOLD_S = 86400.0  # for a folder whose agent ended before it recorded a time


def hold_folder(folder: str, seconds: float) -> None:
    """Keeps this folder for this time, and as long as this process runs: the descriptor stays open
    on purpose, and no rank inherits it."""
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH | fcntl.LOCK_NB)
    with contextlib.suppress(OSError), open(
        os.path.join(folder, RECORD), "w", encoding="ascii"
    ) as target:
        target.write("%d\n" % (time.time() + seconds + MARGIN_S))


def clear_leftovers(now: float) -> list[str]:
    """Removes this user's folders that are past their time, and returns their names. now: seconds
    since the epoch."""
    parent, cleared = tempfile.gettempdir(), []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(parent)):
            folder = os.path.join(parent, name)
            if name.startswith(PREFIX) and is_left_over(folder, now):
                shutil.rmtree(folder, ignore_errors=True)
                cleared.append(name)
    return cleared


def is_left_over(folder: str, now: float) -> bool:
    """Whether the folder belongs to this user, is past its time, and is not locked."""
    try:
        known = os.lstat(folder)
        if (
            not stat.S_ISDIR(known.st_mode)
            or known.st_uid != os.geteuid()
            or now < wanted_until(folder, known)
        ):
            return False
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return False
    return True


def wanted_until(folder: str, known: os.stat_result) -> float:
    """Seconds since the epoch. Raises OSError, ValueError for an empty record."""
    try:
        with open(os.path.join(folder, RECORD), encoding="ascii") as source:
            return float(source.read(64))
    except FileNotFoundError:
        return known.st_mtime + UNTOLD_S
