"""Records that any program repeats, as lines of JSON, CSV or a board, `key: value`, metrics with
labels, or words with numbers: which of their ranks, workers or sources is silent, behind others,
stuck, elsewhere or slower; or that none is.

What grows from record to record is compared by its last value, and the largest step between two
records is the difference that a job which runs shows. Where nothing grows, values must be equal. A
value of one moment alone is compared only where its name is that of a step. Times are compared with
those between two records.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, pairwise
from statistics import median
from typing import NamedTuple

from unhang.core.text import counted
from unhang.core.verdict.odd_one_out import AT_LEAST, odd_ones_out
from unhang.jobs.diagnose.logs.last_words import LAST_LINES, RankLine, gave_up
from unhang.jobs.diagnose.logs.line_prefixes import parse_stamp
from unhang.jobs.diagnose.logs.reading import Block

LONGEST = 1000  # of a line
OF_OTHERS = ("src", "source", "peer", "from")  # for whom a line waits
OF_PLACES = ("host", "node")
OF_PARTS = ("rank", "worker", "stage", *OF_PLACES, *OF_OTHERS, "qp")
FEWEST_TIMES = 3
LONG_S = 60  # of silence or of a state, where one moment shows no pace
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,9})?(?:e[+-]?\d{1,2})?")
_PAIR = re.compile(
    r'"?([A-Za-z][\w./-]{0,40})"?(?: ?[=:#]{1,2} ?|[ =:#])"?(-?\d{1,18}(?:\.\d{1,9})?)\b'
)
_WORD = re.compile(r'([A-Za-z][\w.-]{0,40})=("[^"]{1,80}"|[A-Za-z][\w.-]{0,80})')
_SHARE = re.compile(r"(?<![\d/])(\d{1,9})/(\d{1,9})(?![\d/])")  # of a progress bar
_PART = re.compile(rf"\b({'|'.join(OF_PARTS)})\W{{0,3}}([A-Za-z]*[\w.-]*\d)\b", re.IGNORECASE)
_SOURCES = re.compile(r"\b(?=(?:src|source|peer)\W{0,3}[A-Za-z]*[\w.-]*\d\b)", re.IGNORECASE)
_LINE_OF_ONE = re.compile(r"([A-Za-z][A-Za-z _./()-]{0,40})[:=]\s*(\S[^:=]{0,60})")
_METRIC = re.compile(r"([A-Za-z_:][\w:]{0,80})\{([^{}]{1,400})\} (\S{1,30})(?: \d{1,13})?")
_LABEL = re.compile(r'(\w{1,40})="([^"]{0,80})"')
_CELLS = re.compile(r"\s*[|,;\t]\s*|\s{2,}")
_STEP = re.compile(r"(?i)^(?!.*(?:_m?s|sec\w*|time|/s)$)(?:.*[_ ])?(?:step|iter|batch|epoch)")
_DURATION = re.compile(
    r"(?i)^(?!.*wait).*(?:_|^)(?:m?s|sec(?:onds)?|time|duration|elapsed|latency)$"
)
_RATE = re.compile(r"(?i)(?:per_s(?:ec(?:ond)?)?|/s(?:ec)?|_ps|throughput)$")
_TIME = re.compile(r"(?i)^(?!.*(?:start|creat|boot)).*(?:time|ts$|beat|seen|alive)")
_STATE = re.compile(r"(?i)state|phase|status|doing|activity|where")
_AGE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?) ?s\w{0,6} ago")
_EXIT = re.compile(r"(?i)(?:exit|return)_?(?:code|status)?|rc")
_END = re.compile(r"(?i)finished|completed?|done|succe(?:ss|eded)|ended|exited")


class Record(NamedTuple):
    """shape: what else records have in common that are compared. at_s: its time."""

    line: RankLine
    parts: Mapping[str, str]
    numbers: Mapping[str, float]
    texts: Mapping[str, str]
    shape: tuple[str, ...]
    at_s: float | None

    @property
    def ends(self) -> bool:
        """Whether it says that its program ended well."""
        codes = [code for name, code in self.numbers.items() if _EXIT.fullmatch(name)]
        told = any(_STATE.search(one) and _END.fullmatch(text) for one, text in self.texts.items())
        return not any(codes) and (bool(codes) or told)


class Stand(NamedTuple):
    """who: '' where nobody differs; well: the end is reported, or all are seen to advance."""

    who: str
    why: str
    line: RankLine
    well: bool = False


Series = Mapping[str, Sequence[Record]]


def stands_by_counts(blocks: Mapping[str, Block]) -> Iterator[Stand]:
    """What the records in the last lines of each file show."""
    for file, block in blocks.items():
        records = [one for one in _records(file, block) if one.parts]
        alike: dict[tuple[str, ...], list[Record]] = {}
        for record in records:
            if record.numbers or record.texts:
                alike.setdefault((*record.parts, *record.shape), []).append(record)
        groups = sorted(alike.values(), key=len, reverse=True)
        odd = [
            one
            for group in groups
            for who in sorted(group[0].parts, key=OF_PARTS.index)
            for one in _odd(who, group, records)
        ]
        yield from odd
        if groups and not odd:
            who = min(groups[0][0].parts, key=OF_PARTS.index)
            yield from _well(who, groups[0], records)


def _records(file: str, block: Block) -> Iterator[Record]:
    heads: list[str] = []
    paragraph: dict[str, str] = {}
    line = RankLine(file, 0, "")
    metrics: dict[str, tuple[RankLine, dict[str, str]]] = {}
    for at in range(max(0, len(block.lines) - LAST_LINES), len(block.lines)):
        if gave_up(block.lines[at]):
            break
        text = block.lines[at][:LONGEST].decode("utf-8", "replace").strip()
        here = RankLine(file, block.number(at), text)
        # `key: value`, a record is a paragraph of them, or a section of a rank
        one = _LINE_OF_ONE.fullmatch(text)
        section = None if one else _PART.fullmatch(text.strip("[]=-*#<>: "))
        if paragraph and (not one or one[1] in paragraph):
            yield _record(line, paragraph.items())
            paragraph = {}
        if opened := one or section:
            line = line if paragraph else here
            paragraph[opened[1].strip()] = opened[2]
        elif metric := _METRIC.fullmatch(text):
            name, labels, value = metric.groups()
            _, values = metrics.setdefault(labels, (here, dict(_LABEL.findall(labels))))
            values[name] = value
            if _TIME.search(name):
                metrics[labels] = here, values
        else:
            cells = next(csv.reader([text]), []) if "," in text else _CELLS.split(text.strip("| "))
            cells = [cell.strip() for cell in cells]
            if len(cells) > 1 and all(
                re.fullmatch(r"[A-Za-z][\w .%/()-]{0,30}", one) for one in cells
            ):
                heads = [one.lower() for one in cells]
            elif heads and len(cells) == len(heads):
                yield from _of_row(here, dict(zip(heads, cells, strict=True)))
            elif text[:1] == "{" and text[-1:] == "}":
                yield _record(here, _of_json(text))
            else:
                _, stamp = parse_stamp(text)
                head, *own = _SOURCES.split(text.replace(stamp, "") if stamp else text)
                # a record of each of several sources
                yield from (_record(here, _pairs(head + one), True) for one in own or [""])
    for here, values in [(line, paragraph), *metrics.values()]:
        yield _record(here, values.items())


def _of_row(line: RankLine, row: Mapping[str, str]) -> Iterator[Record]:
    """The record of a row, or one of each rank that has columns of its own."""
    own: dict[str, list[tuple[str, ...]]] = {}
    for name, value in row.items():
        if found := _PART.match(head := name.replace("_", " ")):
            field = head[found.end() :].strip() or "value", value
            own.setdefault(found[0], [found.groups()]).append(field)
    yield from (_record(line, fields) for fields in own.values() or [row.items()])


def _of_json(text: str) -> Iterator[tuple[str, str]]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = {}
    for name, value in row.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        yield from ((f"{name} {more}".strip(), str(one)) for more, one in inner)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for pattern in (_PART, _PAIR, _WORD):
        yield from pattern.findall(text)
    yield from ((f"of {total}", done) for done, total in _SHARE.findall(text))


def _record(line: RankLine, fields: Iterable[tuple[str, ...]], in_words: bool = False) -> Record:
    parts: dict[str, str] = {}
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    stamp, _ = parse_stamp(line.text)
    times = [stamp.at_s] if stamp else []
    for name, value in fields:
        if (part := name.lower().removesuffix("name")) in OF_PARTS:
            parts.setdefault(part, value)
        elif _NUMBER.fullmatch(value):
            number = float(value)
            at_s = number / 1000 if number > 1e12 else number
            if 1e9 < at_s < 4e9 and _TIME.search(name):
                times.append(at_s)
            else:
                numbers.setdefault(name, number)
        elif age := _AGE.fullmatch(value):
            times.append(-float(age[1]))
        else:
            texts.setdefault(name, value)
    shape = tuple(numbers) if in_words else ()
    return Record(line, parts, numbers, texts, shape, max(times, default=None))


def _series(who: str, records: Iterable[Record]) -> dict[str, list[Record]]:
    series: dict[str, list[Record]] = {}
    for record in records:
        if who in record.parts:
            series.setdefault(record.parts[who], []).append(record)
    return series


def _values(name: str, records: Iterable[Record]) -> list[float]:
    return [one.numbers[name] for one in records if name in one.numbers]


def _odd(who: str, records: Sequence[Record], all_records: Sequence[Record]) -> Iterator[Stand]:
    """The odd ones among the values of one part, such as rank."""
    series = _series(who, records)
    if len(series) < AT_LEAST:
        return
    names = dict.fromkeys(name for one in records for name in one.numbers)
    is_one = all(len(own) == 1 for own in series.values())
    grows = [name for name in names if not is_one and _grows(name, series)]
    silent = _silent(who, series, _series(who, all_records))
    if first := [*silent, *_elsewhere(who, series, [*filter(_STEP.search, names)])]:
        yield from first
        return
    if not grows and not is_one:
        if any(own[0].numbers != own[-1].numbers for own in series.values()):
            yield from _slow(who, series, names)
            return
        record = records[0]
        for whom, name in record.parts.items():
            if whom in OF_OTHERS and all(own[-1].parts[whom] == name for own in series.values()):
                less_than = [
                    f", its {other} {record.numbers[one] - record.numbers[other]:g} behind {one}"
                    for one, other in pairwise(record.numbers)
                    if len(
                        {
                            own[-1].numbers.get(one, 0) - own[-1].numbers.get(other, 0)
                            for own in series.values()
                        }
                    )
                    == 1
                ]
                why = f"{counted(len(series), who)} name it again and again{''.join(less_than)}"
                yield Stand(f"{whom} {name}", why, record.line)
    tail = _tail(records, series)
    behind: dict[str, tuple[float, float, str, bool]] = {}
    for name in grows or [one for one in names if not is_one or _STEP.search(one)]:
        # at one moment of a job that runs, a rank can be one step behind
        tolerance = {name: max(_steps(name, series))} if grows else {name: 1} if is_one else {}
        last = {
            key: {name: values[-1]} for key, own in series.items() if (values := _values(name, own))
        }
        less, slower = (
            {
                one.row
                for one in odd_ones_out(
                    {key: {name: _gain(name, own, since)} for key, own in series.items()}, tolerance
                )
            }
            for since in (0, tail)
        )
        for odd in odd_ones_out(last, tolerance):
            mine, others = odd.differs[name]
            goes_on = _gain(name, series[odd.row], tail) > 0
            # Behind, and it gained less, a memory that is smaller for ever is not behind; and it
            # does not go on like the others, as one that began later.
            if mine < others and (
                not grows or (odd.row in less and (odd.row in slower or not goes_on))
            ):
                behind.setdefault(odd.row, (others, mine, name, goes_on))
    for row, (others, mine, name, goes_on) in behind.items():
        why = f"its {name} is at {mine:g}, the others' at {others:g}"
        if goes_on:
            why = f"it falls behind: its {name} came to {mine:g}, the others' to {others:g}"
        yield Stand(_named(who, series[row][-1]), why, series[row][-1].line)
    if not behind:
        yield from _slow(who, series, names)


def _named(who: str, record: Record) -> str:
    host = record.parts.get("host", record.parts.get("node"))
    return f"{who} {record.parts[who]}{f' (host {host})' if host and who not in OF_PLACES else ''}"


def _silent(who: str, series: Series, everything: Series) -> Iterator[Stand]:
    """The one whose last line is far before the last lines of all others."""
    times = {key: [one.at_s for one in everything[key] if one.at_s is not None] for key in series}
    last = {key: own[-1] for key, own in times.items() if own}
    if len(last) < len(series):
        return
    key = min(last, key=lambda key: last[key])
    others = [at for one, at in last.items() if one != key]
    gaps = [one for own in times.values() for one in _changes(own) if one > 0]
    by_s = min(others) - last[key]
    # even at the slowest pace of all it missed two records; one record alone shows no pace
    usual_s = sum(nlargest(2, gaps)) if gaps else LONG_S
    record = everything[key][-1]
    if (
        len(times[key]) >= min(FEWEST_TIMES, median(map(len, times.values())))
        and by_s > usual_s + max(others) - min(others)
        and not record.ends
    ):
        why = f"it is silent, its last sign is {by_s:.0f} s before those of all others"
        yield Stand(_named(who, record), why, record.line)


def _tail(records: Sequence[Record], series: Series) -> int:
    """The number of the line at which the last quarter of the records begins."""
    return records[-max(FEWEST_TIMES * len(series), len(records) // 4) :][0].line.line


def _gain(name: str, own: Sequence[Record], tail: int) -> float:
    late = _values(name, (one for one in own if one.line.line >= tail))
    before = _values(name, (one for one in own if one.line.line < tail))
    return late[-1] - [*before[-1:], *late][0] if late else 0


def _grows(name: str, series: Series) -> bool:
    """Whether a number never falls, and rises in most series."""
    values = [own for one in series.values() if (own := _values(name, one))]
    rising = sum(own[-1] > own[0] for own in values)
    return min(_steps(name, series), default=-1) >= 0 and 2 * rising > len(series)


def _steps(name: str, series: Series) -> list[float]:
    return [one for own in series.values() for one in _changes(_values(name, own))]


def _changes(values: Sequence[float]) -> list[float]:
    return [late - early for early, late in pairwise(values)]


def _slow(who: str, series: Series, names: Collection[str]) -> Iterator[Stand]:
    """The one whose every late duration is longer, or rate lower, than before and than those of all
    others: farther from theirs than theirs are from each other. Slow from the beginning may be its
    part of the work."""
    for name in names:
        if not (is_rate := _RATE.search(name)) and not _DURATION.search(name):
            continue
        power = -1 if is_rate else 1
        times = {
            key: [one**power for one in _values(name, own) if one > 0]
            for key, own in series.items()
        }
        late = {key: own[-max(FEWEST_TIMES, len(own) // 4) :] for key, own in times.items()}
        if min(map(len, late.values())) < FEWEST_TIMES:
            continue
        slowest = max(late, key=lambda key: median(late[key]))
        rest = [*chain(*(own for key, own in late.items() if key != slowest))]
        others, spread = max(rest), max(rest) - min(rest)
        own = [one for one in series[slowest] if one.numbers.get(name, 0) > 0]
        usual = [at for at, one in enumerate(times[slowest]) if one - others <= spread]
        if usual and min(late[slowest]) - others > spread:
            began = own[usual[-1] + 1].numbers.items()
            since = [f" since {step} {at:g}" for step, at in began if _STEP.search(step)]
            bound = f"no other's {'below' if is_rate else 'above'} {others**power:.4g}"
            why = f"its {name} is {median(late[slowest]) ** power:.4g}{''.join(since[:1])}, {bound}"
            yield Stand(_named(who, own[-1]), why, own[-1].line)


def _elsewhere(who: str, series: Series, steps: Sequence[str]) -> Iterator[Stand]:
    """The one whose state is another than that of all others, while all stay in theirs: in some
    records, or as long as one record says."""
    late = {key: own[-FEWEST_TIMES:] for key, own in series.items()}
    for_s = [
        min(_values(name, (own[-1] for own in series.values())))
        for name in next(iter(series.values()))[-1].numbers
        if re.search(r"(?i)sec|_s$", name)
    ]
    is_one = max(map(len, late.values())) == 1 and max(for_s, default=0) >= LONG_S
    states = {
        key: {
            name: text
            for name, text in own[-1].texts.items()
            if is_one or all(one.texts.get(name) == text for one in own)
        }
        for key, own in late.items()
        if is_one
        or (len(own) == FEWEST_TIMES and all(len({*_values(name, own)}) == 1 for name in steps))
    }
    odd = odd_ones_out(states) if len(states) == len(series) else []
    if len(odd) == 1 and any(map(_STATE.search, odd[0].differs)):
        record = series[odd[0].row][-1]
        why = "; ".join(
            f"its {name:.40} is {own:.60}, the others' {rest:.60}"
            for name, (own, rest) in odd[0].differs.items()
        )
        yield Stand(_named(who, record), why, record.line)


def _well(who: str, records: Sequence[Record], all_records: Sequence[Record]) -> Iterator[Stand]:
    """The end that they report, or that all of them advance."""
    series, last = _series(who, records), all_records[-1]
    if len(series) < AT_LEAST:
        return
    ended = [own[-1].ends for own in _series(who, all_records).values()]
    if last.ends and (all(ended) or last.parts.get(who) in (None, "0")):
        yield Stand("", "the last record reports the end of the program", last.line, True)
        return
    for name in filter(_STEP.search, records[-1].numbers):
        values = [_values(name, own) for own in series.values()]
        ends = [own[-1] for own in values if len(own) >= FEWEST_TIMES and own[-1] > own[-2]]
        if len(ends) < len(series):
            continue
        # A program that prints each tenth step prints the same numbers for all ranks, and nothing
        # when it hangs; a clock takes them between steps, also when nothing moves.
        by_clock = len({*chain(*values)}) > max(map(len, values)) + 1
        step = median(_steps(name, series))
        is_steady = all(own[-1] - own[-2] >= min(_changes(own[:-1])) for own in values)
        if max(ends) - min(ends) <= (step / FEWEST_TIMES if by_clock else step):
            why = (
                f"the {name} of all {counted(len(series), who)} advances to {max(ends):g} in the"
                " last record, and nobody is behind"
            )
            yield Stand("", why, records[-1].line, by_clock and is_steady)
            return
