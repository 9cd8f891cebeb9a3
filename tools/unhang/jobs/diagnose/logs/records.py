"""Records that any program repeats, as lines of JSON, CSV or a board, `key: value` or words with
numbers: who of their ranks, workers or sources is behind the others, stands still or is slower.

What grows from record to record is compared by its last value, and the largest step between two
records is the difference that a job which runs shows. Where nothing grows, values must be equal. A
value of one moment alone is compared only where its name is that of a step.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from unhang.core.text import counted
from unhang.core.verdict.odd_one_out import AT_LEAST, odd_ones_out
from unhang.jobs.diagnose.logs.last_words import LAST_LINES, RankLine
from unhang.jobs.diagnose.logs.reading import Block

LONGEST = 1000  # of a line
OF_OTHERS = ("src", "source", "peer", "from")  # for whom a line waits
OF_PARTS = ("rank", "worker", "stage", "host", "node", *OF_OTHERS)
SLOWER = 1.5  # times as long as the longest of the others
FEWEST_TIMES = 3
_PAIR = re.compile(
    r'"?([A-Za-z][\w.-]{0,40})"?(?: ?[=:#]{1,2} ?|[ =:#])"?(-?\d{1,18}(?:\.\d{1,9})?)\b'
)
_PART = re.compile(rf"\b({'|'.join(OF_PARTS)})\W{{0,3}}([A-Za-z]*[\w.-]*\d)\b", re.IGNORECASE)
_LINE_OF_ONE = re.compile(r"[A-Za-z][A-Za-z _./()-]{0,40}[:=]\s*\S[^:=]{0,60}")
_CELLS = re.compile(r"\s*[|,;\t]\s*|\s{2,}")
_STEP = re.compile(r"(?i)(?:^|_)(?:step|iter|batch|epoch)")
_DURATION = re.compile(r"(?i)(?:_|^)(?:m?s|sec(?:onds)?|time|duration|elapsed|latency)$")
Record = tuple[RankLine, Mapping[str, str], Mapping[str, float]]  # parts, numbers


def stands_by_counts(blocks: Mapping[str, Block]) -> Iterator[tuple[str, str, RankLine]]:
    """(who, what the records show, the first of them) of the last lines of each file."""
    for file, block in blocks.items():
        alike: dict[tuple[str, ...], list[Record]] = {}
        for record in _records(file, block):
            if record[1] and record[2]:
                alike.setdefault((*record[1], *record[2]), []).append(record)
        for records in alike.values():
            for who in records[0][1]:
                yield from _odd(who, records)


def _records(file: str, block: Block) -> Iterator[Record]:
    heads: list[str] = []
    parts: list[str] = []
    first = 0
    for at in range(max(0, len(block.lines) - LAST_LINES), len(block.lines)):
        text = block.lines[at][:LONGEST].decode("utf-8", "replace").strip()
        if _LINE_OF_ONE.fullmatch(text):  # `key: value`, a record is a paragraph of them
            first = first if parts else at
            parts.append(text)
            continue
        if parts:
            yield _record(RankLine(file, block.number(first), parts[0]), _pairs(" ".join(parts)))
            parts = []
        line = RankLine(file, block.number(at), text)
        cells = next(csv.reader([text]), []) if "," in text else _CELLS.split(text.strip("| "))
        cells = [cell.strip() for cell in cells]
        if len(cells) > 1 and all(re.fullmatch(r"[A-Za-z][\w .%/()-]{0,30}", one) for one in cells):
            heads = [one.lower() for one in cells]
        elif heads and len(cells) == len(heads):
            yield _record(line, zip(heads, cells, strict=True))
        else:
            yield _record(line, _fields(text))
    if parts:
        yield _record(RankLine(file, block.number(first), parts[0]), _pairs(" ".join(parts)))


def _fields(text: str) -> Iterator[tuple[str, str]]:
    if text[:1] == "{" and text[-1:] == "}":
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = {}
        for name, value in row.items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            yield from ((f"{name} {more}".strip(), str(one)) for more, one in inner)
    else:
        yield from _pairs(text)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    yield from _PART.findall(text)
    yield from ((name, value) for name, value in _PAIR.findall(text))


def _record(line: RankLine, fields: Iterator[tuple[str, str]] | zip[tuple[str, str]]) -> Record:
    parts: dict[str, str] = {}
    numbers: dict[str, float] = {}
    for name, value in fields:
        if name.lower() in OF_PARTS:
            parts.setdefault(name.lower(), value)
        elif re.fullmatch(r"-?\d{1,18}(?:\.\d{1,9})?", value):
            numbers.setdefault(name, float(value))
    return line, parts, numbers


def _odd(who: str, records: Sequence[Record]) -> Iterator[tuple[str, str, RankLine]]:
    """The odd ones among the values of one part, such as rank."""
    series: dict[str, list[Record]] = {}
    for record in records:
        series.setdefault(record[1][who], []).append(record)
    if len(series) < AT_LEAST:
        return
    first, rows = records[0], {key: own[-1][2] for key, own in series.items()}
    is_one = all(len(own) == 1 for own in series.values())
    grows = {name for name in first[2] if not is_one and _grows(name, list(series.values()))}
    if not grows and not is_one:
        still = all(own[0][2] == own[-1][2] for own in series.values())
        if not still:
            yield from _slow(who, series)
            return
        for whom, name in first[1].items():
            if whom in OF_OTHERS and all(own[-1][1][whom] == name for own in series.values()):
                less_than = [
                    f", its {other} {first[2][one] - first[2][other]:g} behind {one}"
                    for one, other in pairwise(first[2])
                    if len({row[one] - row[other] for row in rows.values()}) == 1
                ]
                why = f"{counted(len(series), who)} name it again and again{''.join(less_than)}"
                yield f"{whom} {name}", why, first[0]
    compared = grows or {one for one in first[2] if not is_one or _STEP.search(one)}
    table = {key: {one: row[one] for one in compared if one in row} for key, row in rows.items()}
    tolerances = {name: _largest_step(name, list(series.values())) for name in grows}
    odd = odd_ones_out(table, tolerances)
    gained = {
        key: {name: own[-1][2][name] - own[0][2][name] for name in grows}
        for key, own in series.items()
    }
    less = {one.row: one.differs for one in odd_ones_out(gained, tolerances)} if grows else {}
    for one in odd:  # behind, and it gained less: a memory that is smaller for ever is not behind
        behind = {
            name: pair
            for name, pair in one.differs.items()
            if not grows or (pair[0] < pair[1] and name in less.get(one.row, ()))
        }
        if behind:
            name, (own, others) = min(behind.items(), key=lambda pair: pair[1][1])
            line = series[one.row][-1][0]
            yield (
                f"{who} {one.row}",
                f"its {name} stands at {own:g}, the others' at {others:g}",
                line,
            )
    if not odd:
        yield from _slow(who, series)


def _grows(name: str, series: Sequence[Sequence[Record]]) -> bool:
    """Whether a number never falls, and rises in most series."""
    values = [[record[2][name] for record in own if name in record[2]] for own in series]
    falls = any(one > other for own in values for one, other in pairwise(own))
    return not falls and 2 * sum(own[-1] > own[0] for own in values if own) > len(series)


def _largest_step(name: str, series: Sequence[Sequence[Record]]) -> float:
    return max(
        (other[2][name] - one[2][name] for own in series for one, other in pairwise(own)), default=0
    )


def _slow(who: str, series: Mapping[str, Sequence[Record]]) -> Iterator[tuple[str, str, RankLine]]:
    """The one whose every duration is longer than all of the others."""
    names = next(iter(series.values()))[0][2]
    for name in filter(_DURATION.search, names):
        times = {key: [one[2][name] for one in own] for key, own in series.items()}
        slowest = max(times, key=lambda key: median(times[key]))
        others = max(max(own) for key, own in times.items() if key != slowest)
        if (
            min(times[slowest]) > SLOWER * others > 0
            and min(map(len, times.values())) >= FEWEST_TIMES
        ):
            why = f"its {name} is {median(times[slowest]):g}, no other's above {others:g}"
            yield f"{who} {slowest}", why, series[slowest][-1][0]
