"""Answers of NCCL's RAS in a file: its text, also a part of it, and its JSON. Values in, values
out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang_node.job.parse.ras import parse_blocks, parse_ras

LARGEST = 32 << 20  # bytes of one file
MARKS = (b'"nccl_version"', b"Job summary", b") MISMATCH", b") INCOMPLETE")
_BEGINS = re.compile(
    r"^NCCL version \S{1,40} compiled with|^\{\s{0,8}\"nccl_version\"", re.MULTILINE
)
_BLOCK = re.compile(
    r"^ {0,8}#\d{1,6}-\d{1,6} \([0-9a-f]{1,16}\) (?:MISMATCH|INCOMPLETE)", re.MULTILINE
)
_INDENTED = re.compile(r"^ {1,8}(?=#\d)", re.MULTILINE)


@dataclass
class RasText:
    """What a file has from the first mark on. first: the number of its first line."""

    file: str
    first: int = 0
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def note(self, text: bytes, first: int) -> None:
        """Adds a block, if an answer is in it or began before it."""
        if not self.parts:
            if not any(mark in text for mark in MARKS):
                return
            self.first = first
        if self.size < LARGEST:
            self.parts.append(text)
            self.size += len(text)


@dataclass(frozen=True)
class RasAnswer:
    """One answer. found: as the parser has it. text: its lines; first: the first one's number."""

    found: dict[str, Any]
    file: str
    first: int
    text: str

    def line_of(self, pid: int) -> tuple[int, str]:
        """(line, text) of the first line that names a process."""
        named = re.compile(rf"process {pid} on node|^  Process {pid} |\"pid\": {pid}\b")
        lines = self.text.split("\n")
        at = next((place for place, line in enumerate(lines) if named.search(line)), 0)
        return self.first + at, lines[at].strip()


def ras_answers(kept: RasText) -> list[RasAnswer]:
    """The answers of a file in their order; what is none is left out."""
    if not kept.parts:
        return []
    text = b"\n".join(kept.parts).decode("utf-8", "replace")
    starts = [found.start() for found in _BEGINS.finditer(text)]
    if not starts and (block := _BLOCK.search(text)):
        part = text[block.start() :]
        communicators = parse_blocks(_INDENTED.sub("", part))
        found = {"version": "", "form": "text", "communicators": communicators}
        return [_answer(found, kept, text, block.start(), part)]
    answers = []
    for start, end in itertools.pairwise([*starts, len(text)]):
        part = text[start:end]
        if part.startswith("{"):
            part = part[: part.find("\n}") + 2] if "\n}" in part else part
        try:
            answers.append(_answer(parse_ras(part), kept, text, start, part))
        except ValueError:
            continue
    return answers


def _answer(found: dict[str, Any], kept: RasText, text: str, start: int, part: str) -> RasAnswer:
    return RasAnswer(found, kept.file, kept.first + text.count("\n", 0, start), part)


def first_and_last(answers: Sequence[RasAnswer]) -> tuple[RasAnswer, RasAnswer]:
    """The last answer, and the one before it about the same communicators in the same form."""
    *before, last = answers
    return next((one for one in before[::-1] if _kind(one) == _kind(last)), last), last


def _kind(answer: RasAnswer) -> tuple[str, frozenset[str]]:
    rows = answer.found["communicators"]
    return answer.found["form"], frozenset(str(row["hash"]) for row in rows)
