"""Disables settings in the files that set them: each line stays in its place as a comment.

Only a line that consists of one assignment is changed; a setting in a longer command, in a list or
in another kind of file becomes a ManualStep. A shell line becomes `: # …`, not a comment alone: it
may be the only command under an `if`, which must not be left empty. A line is not deleted, because
nobody would see that there was one, and must not stay in force, because the audit has to pass after
the role: NCCL_P2P_DISABLE=1 in /etc/environment overrides /etc/nccl.conf.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .setting_files import BEGIN, END, OWN

MARK = "disabled by unhang: "
_VALUE = r"""(?:'[^']*'|"(?:[^"\\`]|\\.)*"|[^\s'"`;&|()<>#\\])*"""
_SHELL = (
    r"^(\s*)(?:(?:export|declare\s+-x|typeset\s+-x)\s+)?{name}=" + _VALUE + r"\s*;?\s*(?:#.*)?$"
)
_PRINTED = r"""^(\s*)(?:echo|print)\s+(['"]?)export\s+{name}=[^;&|`]*\2\s*;?\s*(?:#.*)?$"""
_PLAIN = r"^(\s*)(?:export\s+)?{name}="
_PAM_CONF = r"^(\s*){name}\s+(?:DEFAULT|OVERRIDE)="
_UNIT = (
    r"^(\s*)(?:Environment|DefaultEnvironment)=\s*(?:'{name}=[^']*'|"
    + r'"{name}=[^"]*"|{name}=\S*)\s*$'
)


class Change(NamedTuple):
    """A line of a file that is disabled, and the comment that it becomes."""

    file: str
    line: int
    before: str
    after: str


class ManualStep(NamedTuple):
    """A change that a person has to make, and why."""

    why: str
    file: str | None = None
    line: int | None = None
    name: str | None = None


def restored_text(text: str, changes: Iterable[tuple[str, str, int]]) -> tuple[str, list[str]]:
    """(text with each disabled line restored, disabled lines that are no longer in the text).
    changes: [(before, after, line number)]. The same line may occur several times, between others
    that set the same name: each is restored at its place, because the last one (or the first)
    counts."""
    lines, gone = text.split("\n"), []
    for before, after, number in sorted(changes, key=lambda change: change[2]):
        places = [place for place, line in enumerate(lines) if line == after]
        if places:
            lines[number - 1 if number - 1 in places else places[0]] = before
        elif before not in lines:
            gone.append(before)
    return "\n".join(lines), gone


def our_lines(lines: Sequence[str]) -> set[int]:
    """Numbers of the lines that unhang wrote."""
    if OWN in lines:
        return set(range(1, len(lines) + 1))
    ours, inside = set(), False
    for number, line in enumerate(lines, 1):
        inside = inside or line == BEGIN
        if inside:
            ours.add(number)
        inside = inside and line != END
    return ours


def is_continued(lines: Sequence[str], number: int) -> bool:
    """True when the line is part of a longer one."""
    before = lines[number - 2] if number > 1 else ""
    return before.endswith("\\") or lines[number - 1].rstrip("\r").endswith("\\")


def disabled_line(
    path: str, source: str | None, line: str, name: str, continued: bool
) -> str | None:
    """The disabled form of the line, or None if the line is not understood. source: the reader of
    the file; None: any line may be a comment. continued: whether it is part of a longer one."""
    name = re.escape(name)
    if source is None:
        return _commented(line)
    if continued:
        return None
    if source in ("nccl_conf", "user_nccl_conf") or (
        source == "container" and path.endswith(".env")
    ):
        return "# " + MARK + line if line.startswith(re.sub(r"\\(.)", r"\1", name) + "=") else None
    if path.endswith("/pam_env.conf"):
        return _commented(line) if re.match(_PAM_CONF.format(name=name), line) else None
    if source == "environment":
        return _commented(line) if re.match(_PLAIN.format(name=name), line) else None
    if source == "systemd":
        patterns, kept = (
            (_UNIT, _PLAIN) if not path.endswith((".service", ".conf")) else (_UNIT,),
            _commented,
        )
    elif source in ("profile", "slurm"):
        patterns, kept = (_SHELL if source == "profile" else _PRINTED,), _emptied
    else:
        return None
    return (
        kept(line)
        if any(re.match(pattern.format(name=name), line) for pattern in patterns)
        else None
    )


def _commented(line: str) -> str:
    return "# " + MARK + line


def _emptied(line: str) -> str:
    bare = line.lstrip()
    return line[: len(line) - len(bare)] + ": # " + MARK + bare
