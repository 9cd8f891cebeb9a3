"""The journal as text: one JSON object per line. An entry that a dying controller did not finish is
separated from complete ones. No I/O."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from unhang.act.rollout.steps import DONE, STATUSES, TORN, Entry
from unhang.core.errors import UserError
from unhang.core.strict_json import NotStrict, parse_strictly

LONGEST_LINE_BYTES = 64 * 1024
SHAPE = {"at": str, "host": str, "step": str, "status": str, "token": int, "evidence": dict}
NEXT = "move it away after a look, audit the nodes, and make a new plan"


@dataclass(frozen=True)
class JournalText:
    """entries: in the order in which they were written; torn: (line number from 1, text) of each
    line that a controller did not complete."""

    entries: tuple[Entry, ...]
    torn: tuple[tuple[int, str], ...] = ()


class JournalParser:
    """Parses a growing journal. torn: (line number from 1, text) of each incomplete line that is
    followed by another; taken_bytes: number of bytes already parsed."""

    def __init__(self) -> None:
        self.torn: list[tuple[int, str]] = []
        self.taken_bytes = 0
        self._ends = 0  # of lines, so far
        self._open: list[int] = []  # incomplete lines that no later entry has marked as torn yet

    def feed(self, content: bytes) -> list[Entry]:
        """The entries after taken_bytes. A last line that may be incomplete is not parsed yet.
        Raises UserError."""
        entries: list[Entry] = []
        for piece in io.BytesIO(content):  # ends lines at \n alone
            line, ended = piece.rstrip(b"\n"), piece.endswith(b"\n")
            if not ended and not is_whole(line):
                break
            entries += self._line(line, self._ends + 1) if line else []
            self._ends += ended
            self.taken_bytes += len(piece)
        return entries

    def _line(self, line: bytes, number: int) -> list[Entry]:
        if not is_whole(line):
            self._open.append(number)
            self.torn.append((number, _shown(line)))
            return []
        entry = _entry(line, number)
        if self._open and entry.step != TORN:
            raise UserError(
                f"line {self._open[0]} of the journal is not JSON:"
                f" {self.torn[-len(self._open)][1][:80]!r}; {NEXT}"
            )
        self._open.clear()
        return [] if entry.step == TORN else [entry]

    def broken_off(self, content: bytes) -> tuple[tuple[int, str], ...]:
        """`torn` for a journal that ends here, with the bytes after taken_bytes, if there are
        any."""
        return (*self.torn, *([(self._ends + 1, _shown(content))] if content else []))


def parse_journal(content: bytes) -> JournalText:
    """All entries. An incomplete line counts as not written if it is the last one, or if the next
    entry marks it. Raises UserError for any other bad line."""
    parser = JournalParser()
    entries = parser.feed(content)
    return JournalText(tuple(entries), parser.broken_off(content[parser.taken_bytes :]))


def render_entry(entry: Entry, last_line: bytes = b"\n") -> bytes:
    """The bytes to append. last_line: the current last line with its line end, if any; if it is
    incomplete, the appended entry marks that.

    Raises ValueError for an entry that is too long, or is no JSON."""
    line = _line(entry)
    ending = b"" if last_line.endswith(b"\n") else b"\n"
    broken = bool(last_line.strip()) and not is_whole(last_line)
    return ending + (_line(Entry(entry.at, "", TORN, DONE)) if broken else b"") + line


def is_whole(line: bytes) -> bool:
    """Whether a line is a complete JSON object; a part of an object never is."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def last_epoch(entries: Iterable[Entry]) -> int:
    """The number of the newest controller; 0 when there was none."""
    return max((one.token for one in entries if not one.host), default=0)


def _shown(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace")


def _is_time(text: str) -> bool:
    """RFC 3339 with a time zone, because times of a journal are subtracted from each other."""
    try:
        return datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _line(entry: Entry) -> bytes:
    text = json.dumps(
        asdict(entry) | {"evidence": dict(entry.evidence)},
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )
    line = text.encode("utf-8", "replace") + b"\n"
    if len(line) > LONGEST_LINE_BYTES:
        raise ValueError(
            f"the entry of the journal has {len(line)} bytes, more than {LONGEST_LINE_BYTES}"
            f" ({entry.host} {entry.step})"
        )
    return line


def _entry(line: bytes, number: int) -> Entry:
    try:
        document: Any = parse_strictly(line)
    except NotStrict as problem:
        raise UserError(f"line {number} of the journal is not JSON: {problem}; {NEXT}") from None
    right = set(document) == set(SHAPE) and all(
        type(document[key]) is kind for key, kind in SHAPE.items()
    )
    if not right or document["status"] not in STATUSES or not _is_time(document["at"]):
        raise UserError(
            f"line {number} of the journal must have {', '.join(SHAPE)}, and does not; {NEXT}"
        )
    return Entry(**document)
