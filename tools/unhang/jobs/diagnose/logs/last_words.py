"""The last line and the last step of each rank before the first watchdog gave up, which show what a
rank did that the others wait for. A number is a step only behind the words that a rank repeats
most: `best step 6`, said once, is none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from unhang.core.quotes import leading_words

LAST_LINES = 2000  # lines of a block that are looked at, from its end
LONGEST = 300
HEAD = 200
_SPEAKER = re.compile(
    rb"[^\n]{0,60}?\[[Rr]ank["
    rb" =:]{0,2}(\d{1,6})\]|[^\n]{0,60}?\[default(\d{1,6})\]|\((?:Vllm|Ray)?Worker\w{0,20}[_"
    rb" ]TP(\d{1,4})\b[^)\n]{0,60}\)|"
    rb"[^\na-z]{0,40}\b[Rr]ank[ =:]{0,2}(\d{1,6})\b(?=[:\]|)]| - | step | iter )|\s{0,4}(\d{1,5}): "
)
_LABELS = (2, 5)  # the groups that have a launcher's label
_NUMBER = re.compile(rb"\d+")
_STEP = re.compile(
    rb"\b(?:global[_ ])?(?:[Ss]teps?|STEP|[Ii]ter(?:ation)?s?|[Bb]atch|it)["
    rb" :=#]{0,3}\[?(\d{1,9})\b(?! ?(?:ms|s|sec|seconds|MiB|GiB)\b)"
)
_GAVE_UP = (b"Watchdog caught collective operation timeout", b"Timed out waiting")


@dataclass(frozen=True)
class RankLine:
    """A line of a rank. head: its beginning, where the time may be; printed: how many lines the
    rank had printed with it; step: the number of the step that it reports."""

    file: str
    line: int
    text: str
    head: str = ""
    printed: int = 1
    step: int = 0


@dataclass
class LastWords:
    """lines, steps: rank, or ~label, -> its last line, that of its last step. gave_up: a watchdog
    has spoken, and what ranks print after it only follows from it."""

    lines: dict[int, RankLine] = field(default_factory=dict)
    steps: dict[int, RankLine] = field(default_factory=dict)
    gave_up: bool = False

    def note(
        self, lines: list[bytes], first: int, file: str, rank_of_file: int | None = None
    ) -> None:
        """Adds the lines of a block. first: the number of the first line; rank_of_file: whose steps
        are in lines that name no rank."""
        found: dict[tuple[int, bytes], list[tuple[int, int]]] = {}
        for index in range(max(0, len(lines) - LAST_LINES), 0 if self.gave_up else len(lines)):
            line, rank = lines[index], rank_of_file
            if gave_up(line):
                self.gave_up = True
                break
            if (
                b"ank" in line
                or b"TP" in line
                or b"default" in line
                or line[:6].lstrip()[:1].isdigit()
            ) and (named := _SPEAKER.match(line)):
                rank = int(named[named.lastindex or 0])
                rank = ~rank if named.lastindex in _LABELS else rank
                if said := line[named.end() :].strip(b" \t\r:|-"):
                    before = self.lines.get(rank)
                    printed = before.printed + 1 if before else 1
                    head = line[:HEAD].decode("utf-8", "replace")
                    self.lines[rank] = RankLine(file, first + index, _text(said), head, printed)
            if rank is not None and (step := _STEP.search(line)):
                words = _NUMBER.sub(b"#", line[max(0, step.start() - LONGEST) : step.start(1)])
                found.setdefault((rank, words), []).append((index, int(step[1])))
        for (rank, words), places in sorted(found.items(), key=lambda one: one[1][-1]):
            known, (index, number), head = self.steps.get(rank), places[-1], words.decode("latin-1")
            if known is None or known.head == head or known.printed <= len(places):
                text, printed = _text(lines[index]), len(places)
                self.steps[rank] = RankLine(file, first + index, text, head, printed, number)


def gave_up(line: bytes) -> bool:
    """Whether a watchdog spoke: what follows only follows from that."""
    return _GAVE_UP[0] in line or _GAVE_UP[1] in line


def _text(line: bytes) -> str:
    return leading_words(line[: LONGEST + 1].decode("utf-8", "replace"), LONGEST).strip()
