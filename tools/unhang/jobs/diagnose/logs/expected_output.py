"""Output that a report quotes as what should have come: it did not, so nothing in it is evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence

_EXPECTED = re.compile(rb"\W{0,8}(?i:(?:the )?expect(?:ed|ation)\b|(?:it|the (?:log|output)) should (?:be|print|show|look)\b)[^\n]{0,80}$")
_FENCE = b"```"


def expected_lines(lines: Sequence[bytes]) -> set[int]:
    """The indices of lines in fenced blocks under a line that announces what is expected, with nothing but empty lines between."""
    found: set[int] = set()
    announced = fenced = expected = False
    for index, line in enumerate(lines):
        text = line.strip()
        if text.startswith(_FENCE):
            fenced, expected = not fenced, announced and not fenced
            announced = False
        elif fenced:
            found |= {index} if expected else set()
        elif text:
            announced = _EXPECTED.match(text) is not None
    return found
