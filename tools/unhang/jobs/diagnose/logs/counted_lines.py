"""Lines of any program that repeat with counters: who of their ranks or sources is named by all, or
has another count. Only counts that stand still are compared: in a job that runs they differ by the
moment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from unhang.core.text import counted
from unhang.core.verdict.odd_one_out import AT_LEAST, odd_ones_out
from unhang.jobs.diagnose.logs.last_words import LAST_LINES, RankLine
from unhang.jobs.diagnose.logs.reading import Block

LONGEST = 1000  # of a line
OF_PARTS = ("rank", "src", "source", "peer", "worker", "from", "stage")
_NUMBERS = re.compile(r"([A-Za-z][\w-]{0,40})[ =:#]{1,2}(\d{1,18})\b")
_Rows = list[tuple[RankLine, dict[str, int]]]


def stands_by_counts(blocks: Mapping[str, Block]) -> Iterator[tuple[str, str, RankLine]]:
    """(who, what the lines show, the first of them) of the last lines of each file."""
    for file, block in blocks.items():
        alike: dict[tuple[str, ...], _Rows] = {}
        for at in range(max(0, len(block.lines) - LAST_LINES), len(block.lines)):
            text = block.lines[at][:LONGEST].decode("utf-8", "replace").strip()
            row = {name: int(number) for name, number in _NUMBERS.findall(text)}
            alike.setdefault(tuple(row), []).append((RankLine(file, block.number(at), text), row))
        for rows in alike.values():
            yield from _of_rows(rows)


def _of_rows(rows: _Rows) -> Iterator[tuple[str, str, RankLine]]:
    line, first = rows[0]
    parts = [name for name in first if name.lower() in OF_PARTS]
    counters = [name for name in first if name not in parts]
    for who in parts:
        last = {row[who]: row for _, row in rows}
        is_still = all(last[row[who]] == row for _, row in rows) and len(rows) > len(last)
        if len(last) < AT_LEAST or not is_still or not counters:
            continue
        for whom in parts:
            if all(row[whom] == first[whom] for row in last.values()):
                behind = [
                    f", its {other} {first[one] - first[other]} behind {one}"
                    for one, other in pairwise(counters)
                    if len({row[one] - row[other] for row in last.values()}) == 1
                ]
                why = f"{counted(len(last), who)} name it again and again{''.join(behind)}"
                yield f"{whom} {first[whom]}", why, line
        table = {str(part): {name: row[name] for name in counters} for part, row in last.items()}
        for odd in odd_ones_out(table):
            name, (own, others) = next(iter(odd.differs.items()))
            yield f"{who} {odd.row}", f"its {name} stands at {own}, the others' at {others}", line
