"""Parses make.log of a DKMS build: its kernel, and the line that gives the reason of a failure. Text in, values out."""

from __future__ import annotations

import re
from typing import NamedTuple


class MakeLog(NamedTuple):
    """The content of a build's make.log."""

    module: str | None  # from the first line, None if it names no kernel
    kernel: str | None
    architecture: str | None
    number: int  # number of the line with the first error, from 1
    line: str


_HEAD = re.compile(r"^DKMS make\.log for (\S+) for kernel (\S+)(?: \((\S+)\))?", re.M)
# In the order of their value: compiler and linker name the cause, make only reports that there was an error.
_ERRORS = (
    re.compile(r":\d+: (?:fatal )?error: |: fatal error: |^ERROR: modpost: |^(?:FATAL|ERROR): |\bundefined reference\b|^(?:cc1|ld|gcc)\S*: (?:fatal )?error"),
    re.compile(r"^\*\*\* |^error: |^(?:Error|ERROR)[: !]|No such file or directory|Killed|No space left on device"),
    re.compile(r"^make(?:\[\d+\])?: \*\*\* "),
)


def parse_make_log(text: str) -> MakeLog:
    """MakeLog of a log; number 0 and an empty line if the log is empty."""
    head = _HEAD.search(text)
    lines = text.splitlines()
    number, line = _first_error(lines)
    return MakeLog(module=head and head.group(1), kernel=head and head.group(2), architecture=head and head.group(3), number=number, line=line[:300])


def _first_error(lines: list[str]) -> tuple[int, str]:
    for pattern in _ERRORS:
        for number, line in enumerate(lines, 1):
            if pattern.search(line):
                return number, " ".join(line.split())
    for number in range(len(lines), 0, -1):
        if lines[number - 1].strip():
            return number, " ".join(lines[number - 1].split())
    return 0, ""
