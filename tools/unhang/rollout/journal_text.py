"""The journal as text: one JSON object a line. What a controller was writing when it died is told apart from what it had written. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from unhang.errors import UserError
from unhang.rollout.steps import DONE, STATUSES, TORN, Entry
from unhang.strict_json import NotStrict, parse_strictly

LONGEST_LINE_BYTES = 64 * 1024
SHAPE = {"at": str, "host": str, "step": str, "status": str, "token": int, "evidence": dict}
NEXT = "move it away after a look, audit the nodes, and make a new plan"


@dataclass(frozen=True)
class JournalText:
    """entries: in the order in which they were written; torn: (number from 1, text) of each line that a controller did not finish."""

    entries: tuple[Entry, ...]
    torn: tuple[tuple[int, str], ...] = ()


def parse_journal(content: bytes) -> JournalText:
    """All entries. A line that breaks off did not happen, where it is the last or the one behind it says so. Raises UserError for any other bad line."""
    entries: list[Entry] = []
    torn: list[tuple[int, str]] = []
    open_lines: list[int] = []  # broken lines that nothing behind them has called torn yet
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line:
            continue
        if not is_whole(line):
            open_lines.append(number)
            torn.append((number, line[:200].decode("utf-8", "replace")))
            continue
        entry = _entry(line, number)
        if open_lines and entry.step != TORN:
            raise UserError(f"expected JSON in line {open_lines[0]} of the journal, found {torn[-len(open_lines)][1][:80]!r}; {NEXT}")
        open_lines.clear()
        if entry.step != TORN:
            entries.append(entry)
    return JournalText(tuple(entries), tuple(torn))


def render_entry(entry: Entry, last_line: bytes = b"\n") -> bytes:
    """The bytes to append. last_line: the last line that is there, with its end where it has one; where it breaks off, what is appended says so.

    Raises ValueError for an entry that is too long, or is no JSON."""
    line = _line(entry)
    ending = b"" if last_line.endswith(b"\n") else b"\n"
    broken = bool(last_line.strip()) and not is_whole(last_line)
    return ending + (_line(Entry(entry.at, "", TORN, DONE)) if broken else b"") + line


def is_whole(line: bytes) -> bool:
    """Whether a line is one JSON object: a part of one never is."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def last_epoch(entries: Iterable[Entry]) -> int:
    """The number of the newest controller; 0 when there was none."""
    return max((one.token for one in entries if not one.host), default=0)


def _line(entry: Entry) -> bytes:
    text = json.dumps(asdict(entry) | {"evidence": dict(entry.evidence)}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    line = text.encode("utf-8", "replace") + b"\n"
    if len(line) > LONGEST_LINE_BYTES:
        raise ValueError(f"expected an entry of the journal of at most {LONGEST_LINE_BYTES} bytes, found {len(line)} ({entry.host} {entry.step})")
    return line


def _entry(line: bytes, number: int) -> Entry:
    try:
        document: Any = parse_strictly(line)
    except NotStrict as problem:
        raise UserError(f"expected JSON in line {number} of the journal, found what is none: {problem}; {NEXT}") from None
    right = set(document) == set(SHAPE) and all(type(document[key]) is kind for key, kind in SHAPE.items())
    if not right or document["status"] not in STATUSES:
        raise UserError(f"expected {', '.join(SHAPE)} in line {number} of the journal, found something else; {NEXT}")
    return Entry(**document)
