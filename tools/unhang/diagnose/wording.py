"""Which words a log is made of, and which solved logs have words like these: what is left to go by where programs say what no signature knows.

A table (`wording.json`, made by `unhang.diagnose.learning`) holds for each cause the words of solved logs with that cause, rare words counting for more than
common ones. A log resembles a cause as far as its words point the way of that cause's words and not the way of all causes' words (Rocchio's classifier).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from unhang.diagnose.finding import lines_holding
from unhang.errors import UserError

TABLE = Path(__file__).with_name("wording.json")
HEALTHY = "healthy"  # solved logs in which nothing was wrong stand under this word
FIRST_LINES = 200  # of distinct lines of a file; later ones give their words where they tell of a failure
MOST_WORDS = 20_000
SHARPNESS = 20.0  # how much of the belief the nearest cause takes from the next ones; set by leaving out one batch of logs after the other
LEAST_SHARE = 0.02
FEWEST_WORDS = 50  # known ones; a few lines resemble anything
MOST_RESEMBLED = 8
MOST_SHARED = 6
_WORD = re.compile(rb"[A-Za-z_]{3,30}")
_HEXADECIMAL = re.compile(r"x?[a-f]{1,30}")
_FAILURES = (
    b"error", b"fail", b"warn", b"unable", b"cannot", b"could not", b"refus", b"denied", b"timedout", b"timed out", b"timeout", b"time out", b"not found",
    b"no such", b"invalid", b"mismatch", b"abort", b"fatal", b"kill", b"exception", b"missing", b"support", b"stuck", b"hang", b"exceed", b"lost", b"unreach",
    b"insufficient", b"incompatib", b"too many", b"too few", b"too small", b"too large", b"too old", b"no space", b"not permitted",
)  # fmt: skip
Vector = Mapping[str, float]


@dataclass(frozen=True)
class Resemblance:
    """A cause whose solved logs have words like these. share: of the belief, 0 to 1. words: that speak most for it."""

    cause: str
    share: float
    words: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Wording:
    """The words of solved logs. documents: how many there were; found_in: word -> in how many; sums: cause -> the sum of its logs' vectors."""

    documents: int
    found_in: Mapping[str, int]
    sums: Mapping[str, Vector]

    def vector(self, words: Iterable[str]) -> dict[str, float]:
        """The known words by their rarity, as a vector of length 1; empty where no word is known."""
        rare = {word: math.log((1 + self.documents) / (1 + self.found_in[word])) + 1 for word in words if word in self.found_in}
        return _of_length_one(rare)

    def without(self, solved: Iterable[tuple[str, frozenset[str]]]) -> Wording:
        """The same table as if these solved logs, (cause, words), had not been learnt from."""
        sums = {cause: dict(vector) for cause, vector in self.sums.items()}
        for cause, words in solved:
            own = sums.get(cause, {})
            for word, weight in self.vector(words).items():
                own[word] = max(0.0, own.get(word, 0.0) - weight)
        return Wording(self.documents, self.found_in, {cause: kept for cause, kept in sums.items() if sum(kept.values()) > len(kept) * 1e-3})


def words_in(text: bytes) -> set[str]:
    """The words of a text in small letters, without what is left of numbers and addresses."""
    found = {word.decode("ascii").lower().strip("_") for word in set(_WORD.findall(text))}
    return {word for word in found if len(word) > 2 and not _HEXADECIMAL.fullmatch(word)}


def naming_a_failure(lines: Sequence[bytes]) -> list[bytes]:
    """Those lines that hold a word that programs use when something goes wrong."""
    named: set[int] = set()
    for held in lines_holding(_FAILURES, [line.lower() for line in lines]):
        named.update(held)
    return [lines[index] for index in sorted(named)]


def resembling(words: Iterable[str], table: Wording) -> list[Resemblance]:
    """The causes whose solved logs have words like these, nearest first; [] where too few words are known. HEALTHY is one of them."""
    vector = table.vector(words)
    if len(vector) < FEWEST_WORDS:
        return []
    centres = _centres(table)
    near = {cause: sum(weight * centre.get(word, 0.0) for word, weight in vector.items()) for cause, centre in centres.items()}
    nearest = max(near.values())
    beliefs = {cause: math.exp(SHARPNESS * (value - nearest)) for cause, value in near.items()}
    whole = sum(beliefs.values())
    shares = sorted(((belief / whole, cause) for cause, belief in beliefs.items()), reverse=True)[:MOST_RESEMBLED]
    return [Resemblance(cause, share, _shared(vector, centres[cause])) for share, cause in shares if share >= LEAST_SHARE]


def _shared(vector: Vector, centre: Vector) -> tuple[str, ...]:
    weights = sorted(((weight * centre.get(word, 0.0), word) for word, weight in vector.items()), reverse=True)
    return tuple(word for weight, word in weights[:MOST_SHARED] if weight > 0)


@lru_cache(maxsize=2)
def _centres(table: Wording) -> Mapping[str, Mapping[str, float]]:
    """cause -> the direction of its words, less what all causes have in common."""
    units = {cause: _of_length_one(vector) for cause, vector in table.sums.items()}
    common: dict[str, float] = {}
    for unit in units.values():
        for word, weight in unit.items():
            common[word] = common.get(word, 0.0) + weight / len(units)
    return {cause: _of_length_one({word: unit.get(word, 0.0) - shared for word, shared in common.items()}) for cause, unit in units.items()}


def _of_length_one(vector: Vector) -> dict[str, float]:
    length = math.sqrt(sum(weight * weight for weight in vector.values()))
    return {word: weight / length for word, weight in vector.items()} if length else {}


@cache
def load_wording() -> Wording:
    """The project's own table. Raises UserError when it cannot be read: it ships with the program."""
    try:
        return parse_wording(TABLE.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UserError(f"{TABLE}: expected the words of solved logs, could not read them ({problem}); install unhang again") from None


def parse_wording(text: str) -> Wording:
    """The table from its file: {documents, causes: [cause], words: {word: [found in, cause number, weight, cause number, weight, ...]}}."""
    content = json.loads(text)
    causes, rows = content["causes"], content["words"]
    sums: dict[str, dict[str, float]] = {cause: {} for cause in causes}
    for word, row in rows.items():
        for number, weight in zip(row[1::2], row[2::2], strict=True):
            sums[causes[number]][word] = weight / 1000
    return Wording(content["documents"], {word: row[0] for word, row in rows.items()}, sums)
