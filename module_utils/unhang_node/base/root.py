"""Read-only access to a node's files, live or recorded.

Every section reads through one Root, so that this machine, a mounted container and a recorded tree
are audited by the same code. A recorded tree may be several layers (the first that has a path
wins). Symbolic links of a recorded tree are followed inside it: an absolute link of the recorded
node must never lead to a file of the machine that replays it.

Values that are in no file are recorded in files of unhang: /.unhang/space.json, {"/dev/shm":
{"size_bytes": 1, "free_bytes": 1}, ...}, has the answers of statvfs.
"""

from __future__ import annotations

import errno
import os
import stat as stat_bits

from .links import follow_links
from .parse.values import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TEXT_LIMIT_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 64 * 1024  # a larger buffer is mapped and unmapped for each small file
SPACE_FILE = "/.unhang/space.json"
BYTES, INODES = ("size_bytes", "free_bytes"), ("inodes", "free_inodes")


def unwatched(_text: str) -> None:
    """A watch that does nothing: for readers without a deadline."""


class Root:
    """The file trees of one node.

    layers: folders that stand for the node's "/", most specific first; ["/"] is this machine.
    procfs, sysfs: folders that stand for /proc and /sys; None means <layer>/proc and <layer>/sys.
    watch: called with one line before each call that may block ("open /etc/os-release"); a source
    sets it to its context's mark.
    """

    def __init__(
        self, layers: Iterable[str] = ("/",), procfs: str | None = None, sysfs: str | None = None
    ) -> None:
        self.layers = [os.path.abspath(layer) for layer in layers] or ["/"]
        self.mounts = {}
        self.watch: Callable[[str], None] = unwatched
        if procfs:
            self.mounts["/proc"] = os.path.abspath(procfs)
        if sysfs:
            self.mounts["/sys"] = os.path.abspath(sysfs)

    @property
    def is_live(self) -> bool:
        """True when the files are those of the machine that runs this code."""
        return self.layers == ["/"]

    def candidates(self, path: str) -> list[str]:
        """Places on disk that may hold `path` (absolute, of the node), most specific first;
        symbolic links not followed."""
        for mount, folder in self.mounts.items():
            if path == mount or path.startswith(mount + "/"):
                return [folder + path[len(mount) :]]
        if self.is_live:
            return [path]
        return [layer + path if layer != "/" else path for layer in self.layers]

    def _lstat(self, path: str) -> tuple[str, os.stat_result]:
        """(place on disk, lstat) of one path whose parents hold no link; raises the last
        OSError."""
        error: OSError = FileNotFoundError(errno.ENOENT, "no layer to look in", path)
        for place in self.candidates(path):
            try:
                return place, os.lstat(place)
            except OSError as problem:
                # The next layer is read only if the file is missing in this one: a denied file is
                # an error.
                # the path on the node, not that of a recorded tree on this machine
                problem.filename = path
                if not isinstance(problem, (FileNotFoundError, NotADirectoryError)):
                    raise
                error = problem
        raise error

    def resolve(self, path: str) -> str:
        """`path` on the node with every symbolic link followed inside the root. Raises OSError."""
        path = os.path.normpath("/" + path.lstrip("/"))
        self.watch("resolve " + path)
        if self.is_live and not self.mounts:
            return os.path.realpath(path)
        return follow_links(path, self._target)

    def _target(self, path: str) -> str | None:
        """The target of the symbolic link at a path, None if there is no link. Raises OSError."""
        place, status = self._lstat(path)
        return os.readlink(place) if stat_bits.S_ISLNK(status.st_mode) else None

    def place(self, path: str) -> str:
        """Path on this machine of the node's `path`, links followed inside the root. Raises
        OSError."""
        self.watch("open " + path)
        if self.is_live and not self.mounts:
            os.stat(path)
            return path
        return self._lstat(self.resolve(path))[0]

    def _open(self, path: str) -> int:
        """A descriptor of a regular file, opened without blocking: a FIFO or a device is refused,
        because a recorded or planted tree may contain one. Raises OSError."""
        self.watch("open " + path)
        place, status = (
            (path, os.stat(path))
            if self.is_live and not self.mounts
            else self._lstat(self.resolve(path))
        )
        if stat_bits.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat_bits.S_ISREG(status.st_mode):
            raise OSError(
                errno.EINVAL, "this is a device, a FIFO or a socket, not a regular file", path
            )
        return os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def data(self, path: str, limit: int = TEXT_LIMIT_BYTES) -> bytes:
        """Up to `limit` bytes of a regular file. Raises OSError."""
        pieces, remaining_bytes = [], limit
        try:
            descriptor = self._open(path)
            try:
                while remaining_bytes > 0:
                    piece = os.read(descriptor, min(remaining_bytes, PIECE_BYTES))
                    if not piece:
                        break
                    pieces.append(piece)
                    remaining_bytes -= len(piece)
            finally:
                os.close(descriptor)
        except OSError as problem:
            problem.filename = path
            raise
        return b"".join(pieces)

    def text(self, path: str, limit: int = TEXT_LIMIT_BYTES) -> str:
        """Up to `limit` bytes of a file as text; invalid UTF-8 is replaced. Raises OSError."""
        return self.data(path, limit).decode("utf-8", "replace")

    def line(self, path: str) -> str:
        """The content of a one-value file, as in sysfs, stripped. Raises OSError."""
        return self.text(path, 65536).strip()

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder, all layers together. Raises OSError when no layer has it."""
        resolved = self.resolve(path)
        self.watch("list " + path)
        found: set[str] = set()
        error: OSError = FileNotFoundError(errno.ENOENT, "no layer to look in", path)
        seen = False
        for place in self.candidates(resolved):
            try:
                found.update(os.listdir(place))
                seen = True
            except OSError as problem:
                problem.filename = path
                if not isinstance(problem, (FileNotFoundError, NotADirectoryError)):
                    raise
                error = problem
        if not seen:
            raise error
        return sorted(found)

    def link(self, path: str) -> str:
        """The target of a symbolic link, verbatim. Raises OSError."""
        parent, name = os.path.split(os.path.normpath("/" + path.lstrip("/")))
        return os.readlink(self._lstat(os.path.join(self.resolve(parent), name))[0])

    def stat(self, path: str) -> os.stat_result:
        """os.stat_result, links followed inside the root. Raises OSError."""
        self.watch("stat " + path)
        return os.lstat(self.place(path)) if not self.is_live or self.mounts else os.stat(path)

    def exists(self, path: str) -> bool:
        """True when `path` exists. A denied parent raises PermissionError: an unreadable path is
        not a missing one."""
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        """True when `path` leads to a folder."""
        return self.exists(path) and stat_bits.S_ISDIR(self.stat(path).st_mode)

    def space(self, path: str, keys: tuple[str, str] = BYTES) -> tuple[int, int]:
        """(size_bytes, free_bytes) of the file system that holds `path`, or its INODES, (0, 0)
        where it has no fixed number; for a recorded tree, the recorded numbers. Raises OSError and
        ValueError."""
        if not (self.is_live or self.has_kernel_procfs()):
            return parse_space(self.text(SPACE_FILE), path, keys)
        self.watch("statvfs " + path)
        found = os.statvfs(self.place(path))
        if keys == INODES:
            return found.f_files, found.f_favail
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def has_kernel_procfs(self) -> bool:
        """True when /proc is a procfs (of a mounted host) and not recorded files: the root of every
        procfs has inode 1, on a device of its own."""
        try:
            top, inside = self.stat("/"), self.stat("/proc")
        except OSError:
            return False
        return inside.st_ino == 1 and inside.st_dev != top.st_dev


def parse_space(text: str, path: str, keys: tuple[str, str] = BYTES) -> tuple[int, int]:
    """The two numbers that a recorded tree's space file gives for `path`. Raises FileNotFoundError
    and ValueError."""
    recorded = parse_json(text)
    row = recorded.get(path) if isinstance(recorded, dict) else None
    if not isinstance(row, dict) or (keys[0] not in row and keys[0] != "size_bytes"):
        raise FileNotFoundError(errno.ENOENT, "not recorded in " + SPACE_FILE, path)
    size, free = map(row.get, keys)
    if not isinstance(size, int) or not isinstance(free, int):
        raise ValueError(
            f"{path} of {SPACE_FILE} must have two whole numbers, and has {row!r}"[:200]
        )
    return size, free
