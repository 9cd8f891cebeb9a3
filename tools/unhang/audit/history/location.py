"""The path of the history, whether one is kept, and how two programs share it on its file
system."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from unhang.core.errors import UserError
from unhang.core.project import state_folder
from unhang_node.base.parse.mounts import mount_of, parse_mountinfo

SETTING = "UNHANG_HISTORY"  # off, or another file
LATER = "UNHANG_HISTORY_LATER"  # set by a command that stores the run itself, after judging it
OFF = "off"
# Local file systems, on which all programs share the memory that SQLite's write-ahead log needs.
LOCAL = frozenset(
    (
        "bcachefs",
        "btrfs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "jfs",
        "ramfs",
        "reiserfs",
        "tmpfs",
        "xfs",
        "zfs",
    )
)
WRITE_AHEAD, ROLLBACK = "wal", "delete"


def database_file(given: str | None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The file: what was given (--db), UNHANG_HISTORY, or $XDG_STATE_HOME/unhang/history.db; None
    when the history is off. Raises UserError without a home."""
    environ = os.environ if environ is None else environ
    named = given or environ.get(SETTING) or ""
    if named == OFF:
        return None
    if named:
        return Path(named).expanduser().absolute()
    if (state := state_folder(environ)) is None:
        raise UserError(f"there is no home folder for it; set {SETTING} to a file, or to {OFF}")
    return state / "history.db"


def journal_mode(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """WRITE_AHEAD if the folder is on a known local file system, else ROLLBACK: on NFS, Lustre and
    unknown ones."""
    return WRITE_AHEAD if file_system(folder, mountinfo) in LOCAL else ROLLBACK


def file_system(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The type of a folder's file system, from the kernel's mount table; None if the table cannot
    be read."""
    try:
        mounts = parse_mountinfo(mountinfo.read_text(encoding="utf-8", errors="surrogateescape"))
        mount = mount_of(mounts, str(folder.resolve()))
    except (OSError, RuntimeError):
        return None
    return mount.fs_type if mount is not None else None
