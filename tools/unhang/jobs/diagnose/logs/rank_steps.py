"""The last step that each rank printed, in the words of any program: `[rank3] step 118`, `Rank 3:
iter=118`, `3: epoch 2 batch 118/500`. A number is a step only behind the words that a rank repeats
most: `best step 6`, said once, is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unhang.core.quotes import leading_words

LAST_LINES = 2000  # lines of a block that are looked at, from its end
FEWEST_RANKS = 2
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


@dataclass(frozen=True)
class RankStep:
    """The last step of a rank, with its line. head: what stands before it, without numbers; seen:
    how often the rank printed that in its last block."""

    rank: int
    step: int
    file: str
    line: int
    text: str
    head: bytes = b""
    seen: int = 1


def note_steps(
    lines: list[bytes], first: int, file: str, rank_of_file: int | None, steps: dict[int, RankStep]
) -> None:
    """Adds the last step of each rank, or ~label, in these lines. first: the number of the first
    line; rank_of_file: for lines that name no rank."""
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
            head = _NUMBER.sub(b"#", line[max(0, step.start() - 300) : step.start(1)])
            found.setdefault((rank, head), []).append((index, int(step[1])))
    for (rank, head), places in sorted(found.items(), key=lambda one: one[1][-1]):
        known, (index, number) = steps.get(rank), places[-1]
        if known is None or known.head == head or known.seen <= len(places):
            text = leading_words(lines[index][:301].decode("utf-8", "replace"), 300).strip()
            steps[rank] = RankStep(rank, number, file, first + index, text, head, len(places))


def rank_that_stopped_first(steps: Iterable[Mapping[int, RankStep]]) -> tuple[RankStep, int] | None:
    """The last step of the one rank that came less far than all others, and the step that these
    reached; None if several are, it printed steps later than one of them, or only one rank prints
    steps."""
    last = {rank: step for found in steps for rank, step in found.items()}
    if len(last) < FEWEST_RANKS:
        return None
    ranked = sorted(last.values(), key=lambda one: one.step)
    first, *others = ranked
    prints_on = first.seen > 1 and any(
        one.line < first.line for one in others if one.file == first.file
    )
    if prints_on or first.step == others[0].step:
        return None
    return first, others[-1].step
