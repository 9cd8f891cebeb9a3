"""Readers that several sections share: one value of one file, the first of several paths, the
drop-in files of a configuration, the kernel's own threads."""

from __future__ import annotations

from ...base.parse.values import clean, parse_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...base.root import Root

KTHREADD, PF_KTHREAD = "/proc/2", 0x200000  # include/linux/sched.h
CHILDREN_BYTES = 16 << 20


def read_line(root: Root, path: str, limit: int = 4096) -> str:
    """The only line of a file, without control characters. Raises OSError."""
    return clean(root.text(path, 65536), limit)


def read_integer(root: Root, path: str, base: int = 10) -> int:
    """The only number in a file. Raises OSError and ValueError."""
    return parse_integer(root.text(path, 256), base)


def line_if_there(root: Root, path: str) -> str | None:
    """As read_line, or None where the file is missing, empty or unreadable: for files whose absence
    is itself a fact."""
    try:
        return read_line(root, path) or None
    except (OSError, ValueError):
        return None


def text_if_there(root: Root, path: str, limit: int = 65536) -> str:
    """As root.text, or "" where the file is missing or unreadable."""
    try:
        return root.text(path, limit)
    except (OSError, ValueError):
        return ""


def integer_if_there(root: Root, path: str) -> int | None:
    """As read_integer, or None where the file is missing or holds no number."""
    try:
        return read_integer(root, path)
    except (OSError, ValueError):
        return None


def there(root: Root, path: str) -> bool:
    """True if the path exists; False also if that cannot be determined."""
    try:
        return root.exists(path)
    except (OSError, ValueError):
        return False


def names_if_there(root: Root, path: str) -> list[str]:
    """As root.names, or [] where the folder is missing or cannot be listed."""
    try:
        return root.names(path)
    except (OSError, ValueError):
        return []


def first_there(root: Root, paths: Iterable[str]) -> str | None:
    """The first path that exists, or None. Raises OSError if none was found and one could not be
    checked."""
    denied = None
    for path in paths:
        try:
            if root.exists(path):
                return path
        except OSError as problem:
            denied = problem
    if denied:
        raise denied
    return None


def link_name(root: Root, path: str) -> str | None:
    """The last part of a symbolic link's target (a driver, a subsystem), or None if there is no
    such link."""
    try:
        return clean(root.link(path).rstrip("/").rpartition("/")[2], 256) or None
    except (OSError, ValueError):
        return None


def drop_ins(root: Root, folders: Iterable[str], suffix: str = ".conf") -> list[str]:
    """Paths of drop-in files in the order in which they are read: sorted by name over all folders;
    of files with one name, the one in the earliest folder is read."""
    chosen: dict[str, str] = {}
    for folder in folders:
        for name in names_if_there(root, folder):
            if name.endswith(suffix):
                chosen.setdefault(name, folder + "/" + name)
    return [chosen[name] for name in sorted(chosen)]


def kernel_threads(root: Root) -> frozenset[str]:
    """Process ids of the kernel's own threads, which have no file open: a machine with 128 cores
    has more than a thousand, and listing the files of each takes time. In a container process 2 may
    be any program, so its children are inspected."""
    flags = text_if_there(root, KTHREADD + "/stat").rpartition(")")[2].split()[6:7]
    if not (flags and flags[0].isdigit() and int(flags[0]) & PF_KTHREAD):
        return frozenset()
    return frozenset(text_if_there(root, KTHREADD + "/task/2/children", CHILDREN_BYTES).split())
