"""Disables settings in the files that set them: each line stays in its place as a comment.

Only a line that consists of one assignment is changed; a setting in a longer command, in a list or
in another kind of file becomes a ManualStep. A shell line becomes `: # …`, not a comment alone: it
may be the only command under an `if`, which must not be left empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from .masking import mask_urls
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


def plan_file(
    path: str, source: str, text: str, rows: Iterable[tuple[int, str]]
) -> tuple[str, list[Change], list[ManualStep]]:
    """(new text, [Change], [ManualStep]) of one file. rows: [(line number, name)] of the lines to
    disable."""
    lines = text.split("\n")
    ours = _our_lines(lines)
    changes, manual = [], []
    for number, name in sorted(set(rows)):
        if number in ours or not 1 <= number <= len(lines):
            continue
        line = lines[number - 1]
        after = _disabled(path, source, line, name) if not _is_continued(lines, number) else None
        if after is None:
            why = (
                f"expected a line that sets {name} and nothing else, found"
                f" {mask_urls(line.strip()[:120])!r}; take it out by hand"
            )
            manual.append(ManualStep(file=path, line=number, name=name, why=why))
            continue
        lines[number - 1] = after
        changes.append(Change(file=path, line=number, before=line, after=after))
    return "\n".join(lines), changes, manual


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


def _our_lines(lines: list[str]) -> set[int]:
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


def _is_continued(lines: list[str], number: int) -> bool:
    """True when the line is part of a longer one."""
    before = lines[number - 2] if number > 1 else ""
    return before.endswith("\\") or lines[number - 1].rstrip("\r").endswith("\\")


def _disabled(path: str, source: str, line: str, name: str) -> str | None:
    """The disabled form of the line, or None if the line is not understood."""
    name = re.escape(name)
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
