"""Signatures: YAML rows with the text of a program and the causes that it supports; each row is
tested on its own examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from unhang.core import catalogue
from unhang.jobs.diagnose.matching.needed_texts import Needed, needed_texts

_REPEATING = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)
# bytes that are searched around an anchor: a pattern never gets a whole endless line
BEFORE, AFTER = 400, 1600


@dataclass(frozen=True)
class Signature:
    """One row. anchors are bytes; for_ and against: cause -> word of weight."""

    id: str
    kind: str
    anchors: tuple[bytes, ...]
    expression: str
    says: str
    program: str
    versions: str
    for_: Mapping[str, str] = field(default_factory=dict)
    against: Mapping[str, str] = field(default_factory=dict)
    fact: str | None = None
    once: bool = False
    instead: str | None = None
    sources: tuple[Mapping[str, str], ...] = ()
    confidence: str = "documented"
    examples: Mapping[str, list[str]] = field(default_factory=dict)
    words: tuple[Mapping[str, Any], ...] = ()  # instead of those of its causes
    # number of further lines that the pattern gets: the output of a command is below it
    reads_on: int = 0

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled at its first use, because most patterns are never searched in one log."""
        return re.compile(self.expression)

    @cached_property
    def reads_digits(self) -> bool:
        """Whether of lines that differ only in their digits one may match and another not."""
        return bool(self.reads_on) or _reads_digits(parser.parse(self.expression))

    @cached_property
    def needed(self) -> Needed:
        """The parts that a line without digits must contain for the pattern to match; () if there
        are none for certain, or if lines below belong to the match."""
        return () if self.reads_on else needed_texts(self.expression)

    def search(self, line: str, anchors: Sequence[str] | None = None) -> re.Match[str] | None:
        """The match in a line, searched only near the anchors. anchors: those that may be in it,
        None for all."""
        for text in [anchor.decode() for anchor in self.anchors] if anchors is None else anchors:
            at = line.find(text)
            while at >= 0:
                near = max(0, at - BEFORE), at + AFTER
                if found := self.pattern.search(line, *near):
                    return found
                at = line.find(text, at + AFTER // 2)
        return None


def signature_files() -> list[tuple[Path, dict[str, Any]]]:
    """(path, content) of each file of signatures. Raises UserError naming file and fault."""
    return catalogue.checked_files("signatures", "signature-1")


@cache
def load_signatures() -> tuple[Signature, ...]:
    """The project's own signatures. Raises UserError naming file and fault: they ship with the
    program, and its tests refuse what the schema cannot."""
    return tuple(
        _signature({**content.get("defaults", {}), **row})
        for _, content in signature_files()
        for row in content["signatures"]
    )


@cache
def load_causes() -> Mapping[str, Mapping[str, Any]]:
    """cause id -> its row, in the order of the file. Raises UserError."""
    rows = [
        row
        for _, content in catalogue.checked_files("causes", "cause-1")
        for row in content["causes"]
    ]
    return {row["id"]: row for row in rows}


def _signature(row: Mapping[str, Any]) -> Signature:
    return Signature(
        row["id"], row["kind"], tuple(anchor.encode() for anchor in row["anchors"]), row["pattern"],
        row["says"],
        row["program"], row.get("versions", "any"), row.get("for", {}), row.get("against", {}),
        row.get("fact"), row.get("keep") == "once",
        row.get("instead"), tuple(row["sources"]), row["confidence"], row["examples"],
        tuple(row.get("words", ())), row.get("reads_on", 0),
    )  # fmt: skip


def _reads_digits(parsed: Any) -> bool:
    """Whether a pattern needs certain digits, as in an Xid's code, and not just any number."""
    for operation, argument in parsed:
        if operation in (constants.LITERAL, constants.NOT_LITERAL) and chr(argument).isdigit():
            return True
        if operation == constants.GROUPREF:  # a back reference: two equal numbers
            return True
        if operation == constants.IN and any(_names_digits(kind, what) for kind, what in argument):
            return True
        if operation in _REPEATING and _reads_digits(argument[2]):
            return True
        if operation == constants.BRANCH and any(_reads_digits(branch) for branch in argument[1]):
            return True
        if operation == constants.SUBPATTERN and _reads_digits(argument[-1]):
            return True
        if operation in (constants.ASSERT, constants.ASSERT_NOT) and _reads_digits(argument[1]):
            return True
    return False


def _names_digits(kind: Any, what: Any) -> bool:
    """Whether a set of characters contains some digits but not all."""
    if kind == constants.LITERAL:
        return chr(what).isdigit()
    return bool(kind == constants.RANGE and what != (48, 57) and what[0] <= 57 and what[1] >= 48)
