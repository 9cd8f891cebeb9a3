"""The last step that each rank printed, in the words of any program: `[rank3] step 118`, `Rank 3:
iter=118`, `3: epoch 2 batch 118/500`. A number is a step only behind the words that a rank repeats
most: `best step 6`, said once, is none."""

from __future__ import annotations

import re

from unhang.core.quotes import leading_words
from unhang.jobs.diagnose.logs.last_words import LAST_LINES, LONGEST, RankLine

_RANK = re.compile(
    rb"\b[Rr](?:ank|ANK)["
    rb" :=_#]{0,2}(\d{1,6})\b|\[default(\d{1,6})\]|^\s{0,4}\[(\d{1,5})\]|^\s{0,4}(\d{1,5}): "
)
_LABELS = (2, 4)  # the groups that have a launcher's label
_NUMBER = re.compile(rb"\d+")
_STEP = re.compile(
    rb"\b(?:global[_ ])?(?:[Ss]teps?|STEP|[Ii]ter(?:ation)?s?|[Bb]atch|it)["
    rb" :=#]{0,3}\[?(\d{1,9})\b(?! ?(?:ms|s|sec|seconds|MiB|GiB)\b)"
)


def note_steps(
    lines: list[bytes], first: int, file: str, rank_of_file: int | None, steps: dict[int, RankLine]
) -> None:
    """Adds the last step of each rank, or ~label, in these lines. first: the number of the first
    line; rank_of_file: for lines that name no rank. A line's head is what stands before the step,
    without numbers, and it was printed so often in the last block."""
    begin = max(0, len(lines) - LAST_LINES)
    found: dict[tuple[int, bytes], list[tuple[int, int]]] = {}
    for index in range(begin, len(lines)):
        line = lines[index]
        if not (
            b"tep" in line or b"it" in line or b"ter" in line or b"atch" in line or b"STEP" in line
        ) or not (step := _STEP.search(line)):
            continue
        named = _RANK.search(line, 0, step.start()) or _RANK.search(line)
        rank = int(named[named.lastindex or 0]) if named else rank_of_file
        rank = ~rank if named and rank is not None and named.lastindex in _LABELS else rank
        if rank is not None:
            before = _NUMBER.sub(b"#", line[max(0, step.start() - LONGEST) : step.start(1)])
            found.setdefault((rank, before), []).append((index, int(step[1])))
    for (rank, before), places in sorted(found.items(), key=lambda one: one[1][-1]):
        known, (index, number) = steps.get(rank), places[-1]
        head, text = (
            one.decode("utf-8", "replace") for one in (before, lines[index][: LONGEST + 1])
        )
        if known is None or known.head == head or known.printed <= len(places):
            text = leading_words(text, LONGEST).strip()
            steps[rank] = RankLine(file, first + index, text, head, len(places), number)
