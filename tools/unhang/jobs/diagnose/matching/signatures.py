"""Signatures: YAML rows with the text of a program and the causes that it supports; each row is
tested on its own examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from unhang.core import catalogue

# what is left of a pattern without what matches any digit, and names a digit or refers back
_ANY_DIGITS = re.compile(r"\{\d*,?\d*\}|0-9|\?P<\w+>")
_READS_DIGITS = re.compile(rb"\d|\?P=")
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
        named = b" ".join((_ANY_DIGITS.sub("", self.expression).encode(), *self.anchors))
        return bool(self.reads_on or _READS_DIGITS.search(named))

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
