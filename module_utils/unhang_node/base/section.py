"""Arguments of a section's reader, and its report of fields that could not be read."""

from __future__ import annotations

import errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from .root import Root

    T = TypeVar("T")
    UnreadRow = dict[str, str]
    SectionPiece = tuple[str, Any, list[UnreadRow]]
    # more pieces of that section follow
    SourcePiece = SectionPiece | tuple[str, Any, list[UnreadRow], str]


class Absent(Exception):
    """The node lacks what a section describes, such as a driver or a package manager. The text
    names what was searched, in one line."""


class Denied(PermissionError):
    """What may not be read, or not be believed. The text says why, in one line."""


class Unread:
    """Fields of one section that stay null, each with its reason; becomes probe.unread."""

    def __init__(self) -> None:
        self.rows: list[UnreadRow] = []

    def add(self, field: str, status: str, reason: object) -> None:
        """field: path inside the section; status: absent, denied, timeout or error; reason: one
        line."""
        row = {"field": field, "status": status, "reason": str(reason)[:1024]}
        if row not in self.rows:
            self.rows.append(row)

    def of_error(self, field: str, error: BaseException) -> None:
        """Notes an OSError or ValueError with the status that status_of_error gives it."""
        self.add(field, status_of_error(error), one_line(error))

    def attempt(self, field: str, read: Callable[..., T], *arguments: Any) -> T | None:
        """read(*arguments), or None with the reason noted when it raises OSError or ValueError."""
        try:
            return read(*arguments)
        except (OSError, ValueError) as problem:
            self.of_error(field, problem)
            return None


def read_section(name: str, read: Callable[..., Any], root: Root, *arguments: Any) -> SectionPiece:
    """(name, fragment, unread rows) of read(root, unread, *arguments), as a source yields it.

    A section that raises does not affect the others: the exception takes the fragment's place and
    becomes probe.status and probe.error (Absent, OSError and ValueError by status_of_error; any
    other exception is an error that names its type).
    """
    unread = Unread()
    try:
        return name, read(root, unread, *arguments), unread.rows
    except Exception as problem:  # every exception is this section's result
        return name, problem, unread.rows


def status_of_error(error: BaseException) -> str:
    """absent, denied, timeout or error."""
    if isinstance(error, Absent):
        return "absent"
    code = getattr(error, "errno", None)
    if code in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO):
        return "absent"
    if isinstance(error, Denied) or code in (errno.EACCES, errno.EPERM):
        return "denied"
    if code in (errno.ETIMEDOUT, errno.ESTALE):
        return "timeout"
    return "error"


def one_line(error: BaseException) -> str:
    """An exception as one line without control characters."""
    text = str(error) if isinstance(error, (Absent, Denied)) else f"{type(error).__name__}: {error}"
    return "".join(character if character.isprintable() else " " for character in text)[:1024]
