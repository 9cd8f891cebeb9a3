"""Compares the words of a log with those of solved logs, for logs whose lines match no signature.

A table (`word_model.json`, from `unhang.jobs.diagnose.train_word_model`) contains for each word its rarity in solved logs and its weight for each cause: a
linear classifier. A log resembles the causes for which the sum of its words' weights is highest.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from unhang.base.errors import UserError
from unhang.jobs.diagnose.matching.line_search import lines_holding

TABLE = Path(__file__).with_name("word_model.json")
HEALTHY = "healthy"  # label of solved logs without a fault
FAILED = "failure"  # label of logs of programs that failed by themselves
FIRST_LINES = 200  # distinct lines of a file whose words are used; of later lines only those that report a failure
MOST_WORDS = 20_000
FEWEST_WORDS = 20  # minimum number of known words, because a few lines resemble anything
ENOUGH_WORDS = 120  # fewer count in proportion
MOST_RESEMBLED = 7
MOST_SHARED = 6
_WORD = re.compile(rb"[A-Za-z_]{3,30}")
_HEXADECIMAL = re.compile(r"x?[a-f]{1,30}")
_FAILURES = (
    b"error", b"fail", b"warn", b"unable", b"cannot", b"could not", b"refus", b"denied", b"timedout", b"timed out", b"timeout", b"time out", b"not found",
    b"no such", b"invalid", b"mismatch", b"abort", b"fatal", b"kill", b"exception", b"missing", b"support", b"stuck", b"hang", b"exceed", b"lost", b"unreach",
    b"insufficient", b"incompatib", b"too many", b"too few", b"too small", b"too large", b"too old", b"no space", b"not permitted",
)  # fmt: skip


@dataclass(frozen=True)
class Resemblance:
    """A cause whose solved logs have similar words. nearer: distance to the first cause that is not listed; 1 is much. words: those with the highest weight."""

    cause: str
    nearer: float
    words: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Wording:
    """The word model. causes: including HEALTHY and FAILED; rows: word -> [rarity, number of a cause, weight, number, weight, ...], in hundredths."""

    causes: tuple[str, ...]
    rows: Mapping[str, Sequence[int]]


def words_in(text: bytes) -> set[str]:
    """The words of a text in lower case, without parts of numbers and addresses."""
    found = {word.decode("ascii").lower().strip("_") for word in set(_WORD.findall(text))}
    return {word for word in found if len(word) > 2 and not _HEXADECIMAL.fullmatch(word)}


def naming_a_failure(lines: Sequence[bytes]) -> list[bytes]:
    """Lines with a word that programs use for failures."""
    named: set[int] = set()
    for held in lines_holding(_FAILURES, [line.lower() for line in lines]):
        named.update(held)
    return [lines[index] for index in sorted(named)]


def resembling(words: Iterable[str], table: Wording) -> list[Resemblance]:
    """The causes whose solved logs have words like these, nearest first; [] if too few words are known. They may include HEALTHY and FAILED."""
    known = [row for word in words if (row := table.rows.get(word))]
    if len(known) < FEWEST_WORDS:
        return []
    length = math.sqrt(sum(row[0] ** 2 for row in known)) * max(1.0, ENOUGH_WORDS / len(known))
    near = [0] * len(table.causes)
    for row in known:
        for number, weight in zip(row[1::2], row[2::2], strict=True):
            near[number] += weight
    ranked = heapq.nlargest(MOST_RESEMBLED + 1, range(len(near)), key=near.__getitem__)
    beyond = near[ranked.pop()] if len(ranked) > MOST_RESEMBLED else 0
    return [Resemblance(table.causes[number], (near[number] - beyond) / length, _speaking_for(number, words, table)) for number in ranked]


def _speaking_for(number: int, words: Iterable[str], table: Wording) -> tuple[str, ...]:
    """The words that weigh most for a cause."""
    weights = [(dict(zip(row[1::2], row[2::2], strict=True)).get(number, 0), word) for word in words if (row := table.rows.get(word))]
    return tuple(word for weight, word in heapq.nlargest(MOST_SHARED, weights) if weight > 0)


@cache
def load_wording() -> Wording:
    """The project's own table. Raises UserError if it cannot be read, because it ships with the program."""
    try:
        return parse_wording(TABLE.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UserError(f"{TABLE}: expected the words of solved logs, could not read them ({problem}); install unhang again") from None


def parse_wording(text: str) -> Wording:
    """The table from its file: {causes: [cause], words: {word: row}}."""
    content = json.loads(text)
    return Wording(tuple(content["causes"]), content["words"])
