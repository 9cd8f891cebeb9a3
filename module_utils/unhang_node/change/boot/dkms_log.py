"""make.log of a DKMS build: for which kernel it was, and the line that says why it failed. Text in, values out."""

from __future__ import annotations

import re
from typing import NamedTuple


class MakeLog(NamedTuple):
    """What make.log of a build says."""

    module: str | None  # as the first line says, None where it does not
    kernel: str | None
    architecture: str | None
    number: int  # of the first error, counted from 1
    line: str


_HEAD = re.compile(r"^DKMS make\.log for (\S+) for kernel (\S+)(?: \((\S+)\))?", re.M)
# In the order of what they tell: the compiler and the linker name the cause, make only that there was one.
_ERRORS = (
    re.compile(r":\d+: (?:fatal )?error: |: fatal error: |^ERROR: modpost: |^(?:FATAL|ERROR): |\bundefined reference\b|^(?:cc1|ld|gcc)\S*: (?:fatal )?error"),
    re.compile(r"^\*\*\* |^error: |^(?:Error|ERROR)[: !]|No such file or directory|Killed|No space left on device"),
    re.compile(r"^make(?:\[\d+\])?: \*\*\* "),
)


def parse_make_log(text: str) -> MakeLog:
    """MakeLog of a log; number 0 and an empty line where it has no line at all."""
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
