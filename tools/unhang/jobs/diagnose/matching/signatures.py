"""Signatures: YAML rows with the text of a program and the causes that it supports, loaded
strictly; each row is tested on its own examples."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from unhang.core import catalogue
from unhang.jobs.diagnose.matching.kept_signatures import (
    keep_digit_readers,
    kept_digit_readers,
    key_of,
)
from unhang.jobs.diagnose.matching.needed_texts import Needed, needed_texts

WIDEST_REPEAT = 400
LONG_REPEAT = 40  # repeats longer than this are gaps, of which a pattern may have few
MOST_GAPS = 3
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
    # whether of lines that differ only in their digits one may match and another not
    reads_digits: bool = True

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled at its first use, because most patterns are never searched in one log."""
        return re.compile(self.expression)

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
    """The project's own signatures. Raises UserError or ValueError naming file and fault: they ship
    with the program and are tested."""
    files = signature_files()
    key = key_of(content for _, content in files)
    checked = kept_digit_readers(key)
    rows = [one for path, content in files for one in _signatures(path, content, checked)]
    if checked is None:
        ids = [row.id for row in rows]
        if twice := {one for one in ids if ids.count(one) > 1}:
            raise ValueError(f"signature ids stand twice: {', '.join(sorted(twice))}")
        keep_digit_readers(key, [row.id for row in rows if row.reads_digits])
    return tuple(rows)


def _signatures(
    path: Path, content: Mapping[str, Any], checked: Collection[str] | None
) -> list[Signature]:
    defaults = content.get("defaults", {})
    return [_signature({**defaults, **row}, path, checked) for row in content["signatures"]]


@cache
def load_causes() -> Mapping[str, Mapping[str, Any]]:
    """cause id -> its row, in the order of the file. Raises UserError."""
    rows = [
        row
        for _, content in catalogue.checked_files("causes", "cause-1")
        for row in content["causes"]
    ]
    return {row["id"]: row for row in rows}


def _signature(row: Mapping[str, Any], path: Path, checked: Collection[str] | None) -> Signature:
    """checked: the ids of those that read digits, if all rows were checked before."""
    if checked is None and (fault := "; ".join(shape_faults(row))):
        raise ValueError(f"{path}: signature {row['id']}: {fault}")
    made = read_signature(row, checked)
    if checked is None:
        re.compile(made.expression)  # some faults appear only when it is compiled
    return made


def read_signature(row: Mapping[str, Any], checked: Collection[str] | None = None) -> Signature:
    """A row without a fault. checked: as above."""
    return Signature(
        row["id"], row["kind"], tuple(anchor.encode() for anchor in row["anchors"]), row["pattern"],
        row["says"],
        row["program"], row.get("versions", "any"), row.get("for", {}), row.get("against", {}),
        row.get("fact"), row.get("keep") == "once",
        row.get("instead"), tuple(row["sources"]), row["confidence"], row["examples"],
        tuple(row.get("words", ())), row.get("reads_on", 0),
        row["id"] in checked if checked is not None else _depends_on_digits(row),
    )  # fmt: skip


def shape_faults(row: Mapping[str, Any]) -> Iterator[str]:
    """Faults that the schema cannot express: missing fields after defaults, patterns with runaway
    time, anchors that consist of digits."""
    for name in ("program", "sources", "confidence"):
        if name not in row:
            yield f"{name} is missing"
    try:
        yield from pattern_faults(row["pattern"])
    except re.error as problem:
        yield f"pattern: {problem}"
    for anchor in row["anchors"]:
        if len(re.sub(r"[0-9]", "", anchor)) < 3:
            yield f"anchor {anchor!r} has fewer than three characters that are no digits"
    if (row.get("for") or row.get("against")) and not row["examples"].get("near_miss"):
        yield "a row that speaks for or against a cause needs a near_miss"
    if row["kind"] == "folklore" and not row.get("instead"):
        yield "folklore needs an instead"


def pattern_faults(pattern: str) -> Iterator[str]:
    """Faults of a pattern: unbounded repeats, a repeat of variable length inside another, too many
    long gaps. Without these its time is bounded on any line."""
    parsed = parser.parse(pattern)
    for _low, high, inner in _repeats(parsed):
        if high is None or high > WIDEST_REPEAT:
            yield f"pattern: a repeat without bound, or of more than {WIDEST_REPEAT}"
        if (high or 0) > 16 and any(
            inner_high != inner_low and inner_high != 1
            for inner_low, inner_high, _ in _repeats(inner)
        ):
            yield "pattern: a repeat inside a repeat"
    if (gaps := _gaps(parsed)) > MOST_GAPS:
        yield f"pattern: {gaps} gaps longer than {LONG_REPEAT}, at most {MOST_GAPS}"


def _gaps(parsed: Any) -> int:
    """The maximum number of long repeats on one path through the pattern; alternatives do not add
    up."""
    count = 0
    for operation, argument in parsed:
        if operation in _REPEATING:
            low, high, inner = argument
            count += int(high > LONG_REPEAT and high != low) + _gaps(inner)
        elif operation == constants.BRANCH:
            count += max(_gaps(branch) for branch in argument[1])
        elif operation == constants.SUBPATTERN:
            count += _gaps(argument[-1])
    return count


def _depends_on_digits(row: Mapping[str, Any]) -> bool:
    return bool(row.get("reads_on")) or _reads_digits(parser.parse(row["pattern"]))


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


def _repeats(parsed: Any) -> Iterator[tuple[int, int | None, Any]]:
    for operation, argument in parsed:
        if operation in _REPEATING:
            low, high, inner = argument
            yield low, None if high == constants.MAXREPEAT else high, inner
            yield from _repeats(inner)
        elif operation == constants.BRANCH:
            for branch in argument[1]:
                yield from _repeats(branch)
        elif operation == constants.SUBPATTERN:
            yield from _repeats(argument[-1])
        elif operation in (constants.ASSERT, constants.ASSERT_NOT):
            yield from _repeats(argument[1])
