"""Checks paths that a user names: anything but a regular file is refused before a program waits for
it or replaces it."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterator
from pathlib import Path

from unhang.core.errors import UserError

PIPE_PATIENCE_S = 20.0
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def irregular(path: Path) -> str | None:
    """The kind of a path that is neither file nor folder, such as "a pipe"; None for a file, a
    folder and a missing path."""
    try:
        return _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except OSError:
        return None


def checked_inventory(named: str) -> str:
    """An inventory in a form that is valid in any folder: an absolute path, or a list of hosts
    (`a,b,`) unchanged. Raises UserError if it does not exist, or if it or a file that Ansible reads
    with it is a pipe or a device: Ansible would wait for it for ever."""
    if "," in named:
        return named
    path = Path(named)
    if not path.exists():
        raise UserError(
            f"--inventory names {named}, which does not exist; inventory/example shows how an"
            " inventory looks"
        )
    for file in _read_with(path):
        if kind := irregular(file):
            raise UserError(
                f"--inventory: {file} is {kind}, not a regular file; write what it gives to a file"
                " first"
            )
    return str(path.absolute())


def checked_output(named: str) -> Path:
    """Where a document may be written. Raises UserError for a pipe, a device or a folder, which
    would wait for a reader or be replaced.

    And for a folder in which nothing can be written: known before the work is done, and not when
    half an hour of it is to be kept.
    """
    path = Path(named)
    kind = "a folder" if path.is_dir() else irregular(path)
    if kind:
        raise UserError(f"--out names {named}, which is {kind}, not a file to write")
    if not path.parent.is_dir() or not os.access(
        path.parent, os.W_OK | os.X_OK, effective_ids=True
    ):
        found = "may not be written to" if path.parent.is_dir() else "is not a folder"
        raise UserError(f"--out cannot write {path.name}: {path.parent} {found}")
    return path


class PatientPipe:
    """A named pipe that is read. Nobody may ever write to it: then reading raises OSError instead
    of waiting for good."""

    def __init__(self, path: Path, patience_s: float = PIPE_PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self, size: int = 1 << 20) -> bytes:
        """At most `size` bytes; b"" at the end."""
        if not select.select([self._fd], [], [], self._patience_s)[0]:
            raise OSError(f"nothing came through the pipe for {self._patience_s:g} s")
        return os.read(self._fd, size if size > 0 else 1 << 20)

    def close(self) -> None:
        os.close(self._fd)


def _read_with(inventory: Path) -> Iterator[Path]:
    """The inventory and what Ansible reads with it: a folder's files, the variables that lie beside
    a file."""
    yield inventory
    places = (
        [inventory]
        if inventory.is_dir()
        else [inventory.parent / "group_vars", inventory.parent / "host_vars"]
    )
    for place in places:
        for folder, _, files in os.walk(place):
            yield from (Path(folder) / file for file in sorted(files))
