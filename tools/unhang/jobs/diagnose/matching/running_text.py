"""Tells what somebody writes about a message from the message. A program's line begins with a
label, a stamp or a mark, or with the message itself; a sentence names it after other words, in a
paragraph of such lines. A line by itself may be a program's sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unhang.jobs.diagnose.logs.reading import Block

LEFT_OUT_WITHIN = 80  # characters behind what matched
FEWEST_WORDS, LONG = 3, 60  # words before a message; letters of a line
MOST_LINES = 40  # of a paragraph, on either side
_BULLET = r"\s*(?:[#*-]{1,6} {1,3}|\d{1,3}[.)] )?"
# words or numbers from the line's beginning, without a mark among them
_WORDS = re.compile(
    rf"{_BULLET}((?:[(\"']?[\w.'’-]{{1,40}}[)\"'.,;!?]{{0,2}} ){{0,200}})"
    r"(?P<quote>[\"'`“](?:\w+ ){0,2}(?:\w+: )?)?\Z"
)
# values left out, as in SeqNum=..., or named for what they are, as in <bus id>
_WITHOUT_VALUES = re.compile(r"=(?:\.{3}|…)(?=[\s,;)])|<(?:bus|process|rank) ?(?:id|number)>")
_LABELLED = re.compile(r"\S{1,60}: ")
# a line of a program: a mark, a label, a stamp, columns or code within its beginning
_MADE = re.compile(
    rb"(?!\s*[*-] [\w-]{1,30}: (?:[^\s:=]+ ){5})"  # the heading of an item of a list
    rb"(?:\s*(?:[^\w\s#*\"'(-]|[-=*#]{3}|[\w.-]*[^\w\s.,;!?'\")-])"
    rb"|.{0,60}(?:\d\d:\d\d|[^\s.,;!?:] {2,}\S|\t|[:=]\s)|.{0,400}(?:[a-z]=\S|\w: \d))"
)


def is_told(found: re.Match[str], text: str, block: Block, at: int, own: Sequence[str]) -> bool:
    """Whether a match is only named in running text. own: lines in which a program prints it, whose
    words before it are the program's."""
    if _WITHOUT_VALUES.search(text, found.start(), found.end() + LEFT_OUT_WITHIN):
        return True
    words = _WORDS.match(text[: found.start()])
    if not words or not _is_within(words[1], text, block, at):
        return False
    if not words["quote"] and _LABELLED.match(found.group()):
        return False
    if words[1] and any(words[1] in one for one in own):
        return False
    paragraph = [line for way in (-1, 1) for line in _until_blank(block.lines, at, way)]
    paragraph.append(block.lines[at])
    made = sum(_MADE.match(line) is not None for line in paragraph)
    return len(paragraph) > 1 and 2 * made < len(paragraph)


def _is_within(words: str, text: str, block: Block, at: int) -> bool:
    """Whether what stands after these words is within a sentence: after several words, in a line
    that goes on with the sentence of a long line, or in a long item of a list."""
    above = block.lines[at - 1].rstrip() if at else b""
    goes_on = len(above) >= LONG and words[:1].islower() and not above.endswith((b".", b":"))
    is_item = text.lstrip()[:2] in ("- ", "* ") and len(text) >= LONG
    return len(words.split()) >= FEWEST_WORDS or goes_on or is_item


def _until_blank(lines: Sequence[bytes], at: int, way: int) -> list[bytes]:
    found: list[bytes] = []
    while 0 <= (at := at + way) < len(lines) and lines[at].strip() and len(found) < MOST_LINES:
        found.append(lines[at])
    return found
