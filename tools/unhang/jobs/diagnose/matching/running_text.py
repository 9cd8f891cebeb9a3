"""Tells what somebody writes about messages from the messages themselves: in a text with more
lines of sentences than others, and at most one line of a machine that is not set off, nothing is a
message. One line by itself may be a program's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from unhang.jobs.diagnose.logs.reading import Block

OF_A_MACHINE = re.compile(
    rb"^(?:[\W\dIWEFT]{0,30}|[A-Z][a-z]{2} [ \d]\d )\d\d:\d\d:\d\d|kernel: |"
    rb"NCCL (?:INFO|WARN) |^\W{0,3}(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b|"
    rb"\[(?:[Rr]ank ?|default|1,)\d{1,6}\]|^ {0,4}\d{1,5}: |^\[ *\d{1,9}\.\d{1,9}\]|"
    rb"^Traceback \(most|^ *File \"[^\"\n]{1,400}\", line \d|^[\w.]{0,80}(?:Error|Exception):|"
    rb"^ *\[?[\w.@~: /-]{0,60}\]?\$ \w|^[-=*#+]{9}|\S {3,40}[^ \n]|[a-z]=\w[^\n]{0,80}[a-z]=\w|"
    rb"^[a-z][\w.-]{1,40}: |\w\.\w{1,4}:\d{1,6}\]|^\(\w{1,60} pid="
)
SET_OFF = re.compile(rb"> ?\S|(?: {4}|\t)\s*[^\s\w]")  # as Markdown does
_END = re.compile(rb"[a-z][)\"']?[.?!](?:\s|\Z)|\|\s*\Z")  # of a sentence, or a row of a table
_WORDS = re.compile(rb"(?:(?<!\S)[(\"'`]?[A-Za-z][A-Za-z'-]{0,19}[)\"'`.,;:?!]{0,3} ){5}")


def is_a_machines(line: bytes) -> bool:
    """Whether a line has a stamp, a level, a rank, a prompt or a traceback and nobody quotes it."""
    return bool(OF_A_MACHINE.search(line)) and not SET_OFF.match(line)


def numbers_of_prose(block: Block, shapes: Sequence[bytes]) -> set[int]:
    """The numbers of the lines with words in a row, without those that have a stamp, a level, a
    rank, a prompt or a traceback, or are printed again with other numbers. shapes: the lines
    without digits."""
    times = Counter(shapes)
    return {
        block.number(at)
        for at, line in enumerate(block.lines)
        if times[shapes[at]] == 1 and is_in_words(line + b" ") and not OF_A_MACHINE.search(line)
    }


def is_of_people(block: Block, prose: set[int]) -> bool:
    """Whether in more of the lines with these numbers a sentence ends than there are others, and
    than there are lines in a quotation."""
    own = [line for at, line in enumerate(block.lines) if block.number(at) in prose]
    quoted = len([*filter(SET_OFF.match, block.lines)])
    others = len([*filter(bytes.strip, block.lines)]) - len(own) - quoted
    return len([*filter(_END.search, own)]) > max(others, quoted, len(own) == 1)


def is_in_words(outside: bytes, own: Sequence[str] = ()) -> bool:
    """Whether what is around a message, or in a line, is running text. own: lines of the program
    itself, which print it too."""
    words = _WORDS.search(outside)
    return bool(words and not any(words[0].decode().strip() in one for one in own))
