"""Tells what somebody writes about a message from the message. A program's line begins with a
label, a stamp or a mark, or with the message itself; a sentence names it after other words, in a
paragraph of such lines. A line by itself may be a program's sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unhang.jobs.diagnose.logs.reading import Block

MOST_LINES = 40  # of a paragraph, on either side
_BULLET = r"\s*(?:[#*-]{1,6} {1,3}|\d{1,3}[.)] )?"
# at least three words or numbers from the line's beginning, without a mark among them
_WORDS = re.compile(rf"{_BULLET}((?:[(\"']?[\w.'’-]{{1,40}}[)\"'.,;!?]{{0,2}} ){{3,}})\Z")
_LABELLED = re.compile(r"\S{1,60}: ")
# a line of a program: a mark, a label, a stamp, columns or code within its beginning
_MADE = re.compile(
    rb"\s*(?:[^\w\s#*\"'(-]|[-=*#]{3}|[\w.-]*[^\w\s.,;!?'\")-])"
    rb"|.{0,60}(?:\d\d:\d\d|[^\s.,;!?:] {2,}\S|\t|[:=]\s)|.{0,400}(?:[a-z]=\S|\w: \d)"
)


def is_told(found: re.Match[str], text: str, block: Block, at: int, own: Sequence[str]) -> bool:
    """Whether a match is only named in running text. own: lines in which a program prints it, whose
    words before it are the program's."""
    words = _WORDS.match(text[: found.start()])
    if not words or _LABELLED.match(found.group()) or any(words[1] in one for one in own):
        return False
    paragraph = [line for way in (-1, 1) for line in _until_blank(block.lines, at, way)]
    paragraph.append(block.lines[at])
    made = sum(_MADE.match(line) is not None for line in paragraph)
    return len(paragraph) > 1 and 2 * made < len(paragraph)


def _until_blank(lines: Sequence[bytes], at: int, way: int) -> list[bytes]:
    found: list[bytes] = []
    while 0 <= (at := at + way) < len(lines) and lines[at].strip() and len(found) < MOST_LINES:
        found.append(lines[at])
    return found
