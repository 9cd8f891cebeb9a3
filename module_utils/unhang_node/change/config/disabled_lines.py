"""Takes settings out of effect in the files that set them, each line kept where it stood, as a comment.

Only a line that is nothing but one assignment is touched; what stands in a longer command, in a list or in a file of another kind is named for a person.
A shell line becomes `: # …`, not a comment alone: it may be the only command under an `if`, which must not be left empty.
"""

from __future__ import annotations

import re
from collections import namedtuple

from .setting_files import BEGIN, END, OWN

MARK = "unhang set aside: "
_VALUE = r"""(?:'[^']*'|"(?:[^"\\`]|\\.)*"|[^\s'"`;&|()<>#\\])*"""
_SHELL = r"^(\s*)(?:(?:export|declare\s+-x|typeset\s+-x)\s+)?{name}=" + _VALUE + r"\s*;?\s*(?:#.*)?$"
_PRINTED = r"""^(\s*)(?:echo|print)\s+(['"]?)export\s+{name}=[^;&|`]*\2\s*;?\s*(?:#.*)?$"""
_PLAIN = r"^(\s*)(?:export\s+)?{name}="
_PAM_CONF = r"^(\s*){name}\s+(?:DEFAULT|OVERRIDE)="
_UNIT = r"^(\s*)(?:Environment|DefaultEnvironment)=\s*(?:'{name}=[^']*'|" + r'"{name}=[^"]*"|{name}=\S*)\s*$'

Change = namedtuple("Change", "file line before after")
Left = namedtuple("Left", "file line name why")


def plan_file(path, source, text, rows):
    """(new text, [Change], [Left]) of one file. rows: [(line number, name)] that are to lose their effect."""
    lines = text.split("\n")
    ours = _our_lines(lines)
    changes, left = [], []
    for number, name in sorted(set(rows)):
        if number in ours or not 1 <= number <= len(lines):
            continue
        line = lines[number - 1]
        after = _aside(path, source, line, name) if not _is_continued(lines, number) else None
        if after is None:
            why = "expected a line that sets {} and nothing else, found {!r}; take it out by hand".format(name, line.strip()[:120])
            left.append(Left(path, number, name, why))
            continue
        lines[number - 1] = after
        changes.append(Change(path, number, line, after))
    return "\n".join(lines), changes, left


def restored_text(text, changes):
    """(text with each replaced line as it was, lines that are no longer there to be replaced). changes: [(before, after)]."""
    lines, gone = text.split("\n"), []
    for before, after in changes:
        if after in lines:
            lines[lines.index(after)] = before
        elif before not in lines:
            gone.append(before)
    return "\n".join(lines), gone


def _our_lines(lines):
    """Numbers of the lines that unhang itself wrote."""
    if OWN in lines:
        return set(range(1, len(lines) + 1))
    ours, inside = set(), False
    for number, line in enumerate(lines, 1):
        inside = inside or line == BEGIN
        if inside:
            ours.add(number)
        inside = inside and line != END
    return ours


def _is_continued(lines, number):
    """True when the line is part of a longer one."""
    before = lines[number - 2] if number > 1 else ""
    return before.endswith("\\") or lines[number - 1].rstrip("\r").endswith("\\")


def _aside(path, source, line, name):
    """The line without its effect, or None when it is not understood."""
    name = re.escape(name)
    if source in ("nccl_conf", "user_nccl_conf") or (source == "container" and path.endswith(".env")):
        return "# " + MARK + line if line.startswith(re.sub(r"\\(.)", r"\1", name) + "=") else None
    if path.endswith("/pam_env.conf"):
        return _commented(line) if re.match(_PAM_CONF.format(name=name), line) else None
    if source == "environment":
        return _commented(line) if re.match(_PLAIN.format(name=name), line) else None
    if source == "systemd":
        patterns, kept = (_UNIT, _PLAIN) if not path.endswith((".service", ".conf")) else (_UNIT,), _commented
    elif source in ("profile", "slurm"):
        patterns, kept = (_SHELL if source == "profile" else _PRINTED,), _emptied
    else:
        return None
    return kept(line) if any(re.match(pattern.format(name=name), line) for pattern in patterns) else None


def _commented(line):
    return "# " + MARK + line


def _emptied(line):
    bare = line.lstrip()
    return line[: len(line) - len(bare)] + ": # " + MARK + bare
