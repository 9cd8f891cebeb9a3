"""Opens files that a user may have planted, and avoids file systems that may hang.

A reader that runs as root over users' files must survive a symbolic link to a secret, a FIFO
without a writer, a device node and a file of a terabyte. A reader of well-known paths must not
touch a network file system that no option names: a process that touches a hard NFS mount hangs if
the server does not answer.
"""

from __future__ import annotations

import errno
import os
import stat as stat_bits

from .links import follow_links
from .mount_table import read_mounts
from .parse.mounts import is_network, mount_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .parse.mounts import Mount
    from .root import Root
    from .section import Unread

CONFIG_LIMIT_BYTES = 1024 * 1024
NOT_NAMED = "which nobody named: not touched"


class NotLocal(OSError):
    """A path leads to a network file system that no option names."""


def resolve_local(root: Root, mounts: Sequence[Mount], path: str) -> str:
    """`path` with every symbolic link followed, one step at a time, without ever touching a network
    file system.

    mounts: the result of read_mounts_or_none. Raises NotLocal naming the mount before it is
    touched, OSError as lstat does.
    """

    def target_of(here: str) -> str | None:
        mount = network_mount_of(mounts, here)
        if mount:
            raise NotLocal(
                errno.EXDEV, f"lies on {mount.fs_type} at {mount.point}, {NOT_NAMED}", path
            )
        root.watch("lstat " + here)
        place = lstat_place(root, here)
        return os.readlink(place) if stat_bits.S_ISLNK(os.lstat(place).st_mode) else None

    return follow_links(path, target_of)


def resolve_or_none(
    root: Root, unread: Unread, field: str, mounts: Sequence[Mount], path: str
) -> str | None:
    """As resolve_local, or None if the path does not exist, or is on a network file system or
    cannot be read, which is noted for `field`."""
    try:
        return resolve_local(root, mounts, path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        unread.of_error(field, problem)
        return None


def network_mount_of(mounts: Sequence[Mount], path: str) -> Mount | None:
    """The network mount that holds `path`, judged by the path alone, or None. A "/" that is itself
    a network mount (stateless nodes, some VMs) does not count."""
    for mount in mounts:
        if is_network(mount) and (path == mount.point or path.startswith(mount.point + "/")):
            best = mount_of(mounts, path)  # a local file system may be mounted inside
            return best if is_network(best) else None
    return None


def read_mounts_or_none(root: Root) -> list[Mount]:
    """The mounts for resolve_local: [] when the table cannot be read, because then no network mount
    is known."""
    try:
        return read_mounts(root)
    except OSError:
        return []


def lstat_place(root: Root, path: str) -> str:
    """This machine's path of a node's path whose parents contain no link; a link as its last part
    is not followed. Raises FileNotFoundError, PermissionError."""
    for place in root.candidates(path):
        try:
            os.lstat(place)
            return place
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def open_regular(root: Root, path: str, follow: bool = True, owner: int | None = None) -> int:
    """A descriptor of a regular file, opened without blocking. The caller closes it.

    follow: False refuses a symbolic link as the last part of the path (ELOOP). owner: a uid, which
    must own the file. Raises OSError, ValueError.
    """
    if follow:
        place = root.place(path)
        # in another root all links were followed inside it, so the path may not contain one
        follow = root.is_live and not root.mounts
    else:
        parent, name = os.path.split(path)
        place = lstat_place(root, root.resolve(parent).rstrip("/") + "/" + name)
        root.watch("open " + path)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    # Only regular files are opened: merely opening a device may have an effect.
    _demand_regular(os.stat(place) if follow else os.lstat(place), path, owner)
    descriptor = os.open(place, flags if follow else flags | os.O_NOFOLLOW)
    try:
        _demand_regular(os.fstat(descriptor), path, owner)
    except (OSError, ValueError):
        os.close(descriptor)
        raise
    return descriptor


def _demand_regular(status: os.stat_result, path: str, owner: int | None) -> None:
    if stat_bits.S_ISLNK(status.st_mode):
        raise ValueError(f"{path} is a symbolic link, not followed in a place that a user owns")
    if not stat_bits.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file")
    if owner is not None and status.st_uid != owner:
        raise ValueError(f"{path} belongs to uid {status.st_uid}, not to uid {owner}")


def read_file(
    root: Root,
    path: str,
    limit: int = CONFIG_LIMIT_BYTES,
    follow: bool = True,
    owner: int | None = None,
) -> bytes:
    """A whole regular file of at most `limit` bytes. Raises OSError; ValueError when it is larger
    or no regular file."""
    descriptor = open_regular(root, path, follow, owner)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise ValueError(f"{path} has {size} bytes, at most {limit} are read")
        return _read_up_to(descriptor, limit)
    finally:
        os.close(descriptor)


def read_text(
    root: Root,
    path: str,
    limit: int = CONFIG_LIMIT_BYTES,
    follow: bool = True,
    owner: int | None = None,
) -> str:
    """As read_file, as text; invalid UTF-8 is replaced."""
    return read_file(root, path, limit, follow, owner).decode("utf-8", "replace")


def _read_up_to(descriptor: int, limit: int) -> bytes:
    pieces, remaining_bytes = [], limit
    while remaining_bytes > 0:
        piece = os.read(descriptor, min(remaining_bytes, 1 << 20))
        if not piece:
            break
        pieces.append(piece)
        remaining_bytes -= len(piece)
    return b"".join(pieces)


def read_tail(root: Root, path: str, limit: int) -> bytes:
    """The last `limit` bytes of a regular file. Raises OSError, ValueError."""
    descriptor = open_regular(root, path)
    try:
        size = os.fstat(descriptor).st_size
        os.lseek(descriptor, max(0, size - limit), os.SEEK_SET)
        return _read_up_to(descriptor, limit)
    finally:
        os.close(descriptor)


def names_or_none(root: Root, path: str) -> list[str]:
    """Sorted names in a folder; [] when there is no such folder. Raises OSError for a folder that
    cannot be read."""
    try:
        return root.names(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
