"""Opens the files of a run folder that are not written in one piece, so that nobody else can read
them, not even while they are new, and that a folder of somebody else cannot lead to another file:
no link is followed, no device or pipe is waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from unhang.core.bounded_reads import read_at_most
from unhang.core.errors import UserError
from unhang.core.run.whole_files import GROUP_ENV

SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# a link, a socket or a pipe, a device, a folder
NOT_OPENED = (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR)
KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
)
NEXT = (
    "nothing was read or written; next: look who made it, remove it, and audit into a run folder of"
    " your own"
)


def open_private(path: Path, flags: int) -> int:
    """A descriptor of the file, which is created with mode 0600; the group that UNHANG_GROUP names
    may read it. flags: of os.open, besides O_CREAT.

    Raises OSError, and UserError for what is no regular file under this name alone, or belongs to
    another user.
    """
    handle = _opened(path, flags | os.O_CREAT)
    try:
        found, user = os.fstat(handle), os.geteuid()
        if found.st_nlink != 1:
            raise UserError(
                f"{path} has {found.st_nlink} names, and must be a file under this name alone;"
                f" {NEXT}"
            )
        if user not in (0, found.st_uid) and found.st_uid:
            raise UserError(
                f"{path} belongs to user {found.st_uid}, and must belong to user {user} or to root;"
                f" {NEXT}"
            )
        if os.environ.get(GROUP_ENV) and found.st_uid == user:
            os.fchmod(handle, 0o640)
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_regular(path: Path, most_bytes: int, start: int = 0) -> bytes:
    """A file from this byte on. Raises OSError, and UserError for what is no regular file, or
    larger than most_bytes."""
    handle = _opened(path, os.O_RDONLY)
    with os.fdopen(handle, "rb", buffering=0) as source:
        source.seek(start)
        data = read_at_most(
            source, most_bytes + 1 - start, expected_bytes=os.fstat(handle).st_size + 1 - start
        )
    if data and start + len(data) > most_bytes:
        raise UserError(f"{path} is larger than {most_bytes} bytes; {NEXT}")
    return data


def others_may_write(folder: Path) -> bool:
    """Whether somebody besides this user and root owns the folder, or can put something into it.
    root trusts the owner. Raises OSError."""
    found, user = folder.stat(), os.geteuid()
    return bool(found.st_mode & 0o022) or (user != 0 and found.st_uid not in (0, user))


def _opened(path: Path, flags: int) -> int:
    try:
        handle = os.open(path, flags | SAFELY, 0o600)
    except OSError as problem:
        if problem.errno not in NOT_OPENED:
            raise
        raise _no_file(path, path.lstat().st_mode) from None
    if not stat.S_ISREG(mode := os.fstat(handle).st_mode):
        os.close(handle)
        raise _no_file(path, mode)
    return handle


def _no_file(path: Path, mode: int) -> UserError:
    kind = next((name for is_kind, name in KINDS if is_kind(mode)), "a device")
    return UserError(f"{path} is {kind}, not a regular file; {NEXT}")
