"""Tells what somebody writes about a message from the message itself: in a file without any line of
a machine, a message within a sentence is only quoted. One line by itself may be a program's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unhang.jobs.diagnose.logs.reading import Block

# words or numbers from the line's beginning, without a mark among them
_WORDS = re.compile(
    r"(?P<bullet>\s*(?:[#*-]{1,6} {1,3}|\d{1,3}[.)] )?)"
    r"(?P<words>(?:[(\"']?[\w.'’-]{1,40}[)\"'.,;!?]{0,2} ){0,200})"
    r"(?P<quote>[\"'`“](?:\w+ ){0,2}(?:\w+: )?)?\Z"
)
# values left out, as in SeqNum=..., or named for what they are, as in <bus id>
_WITHOUT_VALUES = re.compile(r"=(?:\.{3}|…)(?=[\s,;)])|<(?:bus|process|rank) ?(?:id|number)>")
_LABELLED = re.compile(r"\S{1,60}: ")
_OF_A_MACHINE = re.compile(
    rb"(?m)^(?:[\W\dIWEFT]{0,30}|[A-Z][a-z]{2} [ \d]\d )\d\d:\d\d:\d\d|kernel: |"
    rb"NCCL (?:INFO|WARN) |^\W{0,3}(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b|"
    rb"\[(?:[Rr]ank ?|default|1,)\d{1,6}\]|^ {0,4}\d{1,5}: |^\[ *\d{1,9}\.\d{1,9}\]|"
    rb"^Traceback \(most|^ *File \"[^\"\n]{1,400}\", line \d|^[\w.]{0,80}(?:Error|Exception):|"
    rb"^ *\[?[\w.@~: /-]{0,60}\]?\$ \w|^[-=*#+]{9}|\S {3,40}[^ \n]|[a-z]=\w[^\n]{0,80}[a-z]=\w"
)
_SENTENCE = re.compile(rb"(?:\b[A-Za-z'-]{1,20},?\s){5}[a-z'-]{2,20}[.?!](?:\s|\Z)")
_LETTER = re.compile(rb"[A-Za-z]")
_DIGITS = b"0123456789"


def has_lines_of_a_machine(block: Block, text: bytes) -> bool:
    """Whether a line has a stamp, a level, a rank, a prompt or a traceback before its message, or
    is printed again, with the same or other numbers; or no line is a sentence."""
    if _OF_A_MACHINE.search(text) or not _SENTENCE.search(text):
        return True
    shapes = [line.translate(None, _DIGITS) for line in block.lines if _LETTER.search(line)]
    return len({*shapes}) < len(shapes) or len(shapes) == 1


def is_in_a_sentence(found: re.Match[str], text: str, own: Sequence[str]) -> bool:
    """Whether other words or a bullet come before a match, or its values are left out. own: lines
    in which a program prints it, whose words before it are the program's."""
    if _WITHOUT_VALUES.search(text, found.start()):
        return True
    before = _WORDS.match(text[: found.start()])
    if not before or not (before["words"] or before["bullet"].strip() or before["quote"]):
        return False
    if not before["quote"] and _LABELLED.match(found.group()):
        return False
    return not any(before["words"] in one for one in own if before["words"])
