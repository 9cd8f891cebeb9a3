"""Follows symbolic links inside a tree that is not this machine's own root: a recorded node, a
mounted container, a test's root."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LINKS = 40  # the kernel's own limit (MAXSYMLINKS)


def follow_links(path: str, read_target: Callable[[str], str | None]) -> str:
    """`path` with every symbolic link followed, one part at a time; an absolute target begins at
    the tree's own /, and ".." never leads above it.

    read_target: the target of the link at a path, None if there is no link; called for each part in
    turn, parents first. Its exceptions pass through. Raises OSError (ELOOP).
    """
    done, links = "", 0
    pending = _parts(path)
    while pending:
        part = pending.pop(0)
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = done + "/" + part
        target = read_target(here)
        if target is None:
            done = here
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            done = ""
        pending = _parts(target) + pending
    return done or "/"


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
