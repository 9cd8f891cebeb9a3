"""Caches in which torch builds extensions, and their locks: with a stale lock every later start
waits for ever.

torch.utils.cpp_extension creates <cache>/<python_cuda>/<name>/lock with O_EXCL, keeps it open while
it builds and removes it afterwards; a process that finds the lock waits, without a deadline, until
it is gone.
"""

from __future__ import annotations

import os
import stat as stat_bits

from ...base.untrusted_files import lstat_place, resolve_local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

    FileKey = tuple[int, int]
    Lock = tuple[str, float, FileKey]

CACHE = "/.cache/torch_extensions"
MEGATRON_BUILDS = (
    "/megatron/fused_kernels/build",
    "/megatron/legacy/fused_kernels/build",
    "/fused_kernels/build",
)
MAX_BUILDS = 512
MAX_LOCKS = 128


def read_cache(
    root: Root,
    unread: Unread,
    mounts: Sequence[Mount],
    path: str,
    user: str | None,
    now_s: float,
    owner: int | None = None,
) -> dict[str, Any] | None:
    """A row of torch.extension_caches, or None when there is no such folder. owner: a uid, which
    must own the folder (a user's link must not make root read other folders). mounts: () for a path
    that an option names, which may be on any file system."""
    found = find_cache(root, unread, mounts, path, user, now_s, owner)
    if found is None:
        return None
    row, keys = found
    _judge_locks(root, unread, f"extension_caches[{path}]", row["locks"], keys)
    return row


def find_cache(
    root: Root,
    unread: Unread,
    mounts: Sequence[Mount],
    path: str,
    user: str | None,
    now_s: float,
    owner: int | None = None,
) -> tuple[dict[str, Any], list[FileKey]] | None:
    """As read_cache, with the files of its locks, of which it is not known yet who holds them."""
    try:
        folder = resolve_local(root, mounts, path)
        status = root.stat(folder)
        if not stat_bits.S_ISDIR(status.st_mode):
            return None
        if owner is not None and status.st_uid != owner:
            raise ValueError(f"{path} leads to {folder}, which belongs to uid {status.st_uid}")
        builds, locks = _look(root, folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as problem:
        unread.of_error(f"extension_caches[{path}]", problem)
        return None
    rows = [
        {"path": lock, "age_s": round(max(0.0, now_s - changed), 1), "held": None, "stale": None}
        for lock, changed, _key in locks[:MAX_LOCKS]
    ]
    return {"path": path, "user": user, "builds": builds[:MAX_BUILDS], "locks": rows}, [
        key for _lock, _changed, key in locks[:MAX_LOCKS]
    ]


def _look(root: Root, folder: str) -> tuple[list[str], list[Lock]]:
    """([build], [(path of lock, time of change, (device, inode))]) of folders one and two levels
    below; links are not followed."""
    locks: list[Lock] = []
    builds, looked_into = [], 0
    for first in root.names(folder)[:MAX_BUILDS]:
        top = folder + "/" + first
        if first == "lock":
            _add_lock(root, locks, top)
            continue
        inside = _names_of_folder(root, top)
        if "lock" in inside:
            _add_lock(root, locks, top + "/lock")
        if "build.ninja" in inside or any(name.endswith(".so") for name in inside):
            builds.append(first)
        for second in inside[: max(0, MAX_BUILDS - looked_into)]:
            looked_into += 1
            deeper = _names_of_folder(root, top + "/" + second)
            if "lock" in deeper:
                _add_lock(root, locks, top + "/" + second + "/lock")
            if deeper:
                builds.append(first + "/" + second)
    return builds, locks


def _names_of_folder(root: Root, path: str) -> list[str]:
    try:
        place = lstat_place(root, path)
        return sorted(os.listdir(place)) if stat_bits.S_ISDIR(os.lstat(place).st_mode) else []
    except OSError:
        return []


def _add_lock(root: Root, locks: list[Lock], path: str) -> None:
    try:
        status = os.lstat(lstat_place(root, path))
    except OSError:
        return
    if stat_bits.S_ISREG(status.st_mode):
        locks.append((path, status.st_mtime, (status.st_dev, status.st_ino)))


def _judge_locks(
    root: Root, unread: Unread, field: str, rows: list[dict[str, Any]], keys: list[FileKey]
) -> None:
    """Fills in held and stale from the open files of all processes, only if there is a lock."""
    if not rows:
        return
    if not root.is_live:
        unread.add(field + ".locks", "absent", "a recorded tree does not show who holds a lock")
        return
    if not mark_held(rows, keys):
        unread.add(field + ".locks", "denied", "other users' open files need root")


def mark_held(rows: list[dict[str, Any]], keys: list[FileKey]) -> bool:
    """Fills in held and stale of locks from the open files of all processes; keys: their files, in
    the same order. Whether every process could be inspected."""
    held, complete = held_files(frozenset(keys), "/proc")
    for index, row in enumerate(rows):
        row["held"] = True if keys[index] in held else (False if complete else None)
        row["stale"] = None if row["held"] is None else not row["held"]
    return complete


def held_files(keys: frozenset[FileKey], procfs: str) -> tuple[set[FileKey], bool]:
    """(the files of `keys`, pairs of device and inode, that some process has open; whether every
    process could be inspected).

    Compared by inode, because a process in a container has other paths for its files. Only files
    named "lock" are compared.
    """
    held, complete = set(), True
    for pid in os.listdir(procfs):
        if not pid.isdigit():
            continue
        folder = f"{procfs}/{pid}/fd"
        try:
            descriptors = os.listdir(folder)
        except PermissionError:
            complete = False
            continue
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                if os.path.basename(os.readlink(folder + "/" + descriptor)) == "lock":
                    status = os.stat(folder + "/" + descriptor)
                    held.update({(status.st_dev, status.st_ino)} & keys)
            except OSError:
                continue
    return held, complete


def megatron_builds(root: Root, path: str) -> list[str]:
    """Build folders of Megatron's fused kernels below a named path; the path itself when it is
    one."""
    if path.rstrip("/").endswith("/fused_kernels"):
        return [path.rstrip("/") + "/build"]
    return [
        path.rstrip("/") + below
        for below in MEGATRON_BUILDS
        if root.is_dir(path.rstrip("/") + below)
    ]
