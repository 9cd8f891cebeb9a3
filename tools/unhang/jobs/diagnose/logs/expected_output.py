"""Output that a report quotes as what should have come: it did not, so nothing in it is evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence

_EXPECTED = re.compile(rb"\W{0,8}(?i:(?:the )?expect(?:ed|ation)\b|(?:it|the (?:log|output)) should (?:be|print|show|look)\b)[^\n]{0,80}$")
_FENCE = b"```"


def expected_lines(lines: Sequence[bytes]) -> set[int]:
    """The indices of lines in fenced blocks under a line that announces what is expected, with nothing but empty lines between. A block that is never closed
    may hold the rest of the report, so it counts as evidence.
    """
    found: set[int] = set()
    announced, begin = False, None  # begin: the first line of the block, where one is open
    for index, line in enumerate(lines):
        text = line.strip()
        if text.startswith(_FENCE):
            if begin is not None and announced:
                found.update(range(begin, index))
            begin, announced = (index + 1, announced) if begin is None else (None, False)
        elif text and begin is None:
            announced = _EXPECTED.match(text) is not None
    return found
