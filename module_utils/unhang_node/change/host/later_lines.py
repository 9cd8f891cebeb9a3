"""Lines of systemd's drop-ins that are read after unhang's and would override it: `systemctl edit`
writes override.conf, whose name sorts after a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Tuple

from ...base.parse.values import parse_systemd_settings
from ...base.root import Root
from ...facts.sections.limits import settings_of

FileLine = Tuple[str, int, str]
"""path, line number, line"""


class LaterLines(NamedTuple):
    """Lines that would override unhang's. to_disable: in files below /etc; beyond: in files of
    packages or of the running boot (/usr, /run)."""

    to_disable: tuple[FileLine, ...] = ()
    beyond: tuple[FileLine, ...] = ()


def find_later_lines(
    root: Root,
    own: str,
    paths: Iterable[str],
    section: str,
    setting: str,
    is_enough: Callable[[str], bool],
) -> LaterLines:
    """LaterLines about one setting. own: path of unhang's drop-in; paths: of all drop-ins;
    is_enough: whether a value may stay. Raises OSError, ValueError."""
    disable: list[FileLine] = []
    beyond: list[FileLine] = []
    for path in paths:
        if path.rpartition("/")[2] <= own.rpartition("/")[2]:
            continue
        for row, value in setting_lines(root, path, section, setting):
            if not is_enough(value):
                (disable if row[0].startswith("/etc/") else beyond).append(row)
    return LaterLines(tuple(disable), tuple(beyond))


def setting_lines(root: Root, path: str, section: str, setting: str) -> list[tuple[FileLine, str]]:
    """[(line, value)] of a file's lines that set `setting`, [] for a file that cannot be read.
    Links in the line's path are followed. Raises OSError, ValueError."""
    if all(name != setting for name, _value in settings_of(root, path, section)):
        return []
    real, rows, inside = root.resolve(path), [], False
    lines = root.text(real, 262144).split("\n")
    for number, text in _logical_lines(lines):
        head = text.strip()
        if head.startswith("[") and head.endswith("]"):
            inside = head == f"[{section}]"
        for name, value in (
            parse_systemd_settings(f"[{section}]\n{text}", section) if inside else ()
        ):
            if name == setting:
                rows.append(((real, number, lines[number - 1]), value))
    return rows


def _logical_lines(lines: Sequence[str]) -> list[tuple[int, str]]:
    """[(number of its first line, text)]: a line that ends in a backslash goes on in the next one
    that is no comment (systemd.syntax(7))."""
    found: list[tuple[int, str]] = []
    goes_on = False
    for number, line in enumerate(lines, 1):
        is_comment = line.lstrip().startswith(("#", ";"))
        if goes_on:
            found[-1] = (found[-1][0], found[-1][1] + "\n" + line)
        else:
            found.append((number, line))
        goes_on = goes_on if is_comment else line.rstrip("\r").endswith("\\")
    return found


def values_without(
    root: Root, paths: Iterable[str], section: str, setting: str, disabled: Sequence[FileLine] = ()
) -> list[str]:
    """Values of a setting in files, in their order, without the lines that will be disabled. Raises
    OSError, ValueError."""
    return [
        value
        for path in paths
        for row, value in setting_lines(root, path, section, setting)
        if row not in disabled
    ]
