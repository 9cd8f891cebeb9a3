"""Refuses a file that is a link to a network file system: all nodes would read what one node writes
there, and a canary would change the whole fleet."""

from __future__ import annotations

from ...base.root import Root
from ...base.untrusted_files import NotLocal, network_mount_of, read_mounts_or_none, resolve_local


def why_shared(rootfs: str, path: str) -> str | None:
    """The reason why a path must not be written, because its links lead to a network file system;
    None for any other path. Touches no network file system. A path that is on one by its own name
    is allowed, because somebody chose it."""
    root = Root([rootfs])
    mounts = read_mounts_or_none(root)
    if network_mount_of(mounts, path):
        return None
    try:
        resolve_local(root, mounts, path)
    except NotLocal as problem:
        place = str(problem.strerror).partition(",")[0]
        return (
            f"this is a link to a file that {place}, which other nodes read too; change it there,"
            " or replace the link by a file"
        )
    except (FileNotFoundError, NotADirectoryError):
        return None  # it does not exist yet and will be created on this node
    return None
