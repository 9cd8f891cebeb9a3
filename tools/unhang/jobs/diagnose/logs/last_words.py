"""The last line of each rank before the first watchdog gave up: it shows what a rank did that the
others wait for."""

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
_GAVE_UP = (b"Watchdog caught collective operation timeout", b"Timed out waiting")


@dataclass(frozen=True)
class RankLine:
    """A line of a rank. head: its beginning, where the time may stand; printed: how many lines the
    rank had printed with it; step: the number of the step that it reports."""

    file: str
    line: int
    text: str
    head: str = ""
    printed: int = 1
    step: int = 0


@dataclass
class LastWords:
    """lines: rank, or ~label, -> its last line. gave_up: a watchdog has spoken, and what ranks
    print after it only follows from it."""

    lines: dict[int, RankLine] = field(default_factory=dict)
    gave_up: bool = False

    def note(self, lines: list[bytes], first: int, file: str) -> None:
        """Adds the lines of a block. first: the number of the first line."""
        if self.gave_up:
            return
        begin = max(0, len(lines) - LAST_LINES)
        for index in range(begin, len(lines)):
            line = lines[index]
            if _GAVE_UP[0] in line or _GAVE_UP[1] in line:
                self.gave_up = True
                return
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
                    self.lines[rank] = RankLine(
                        file,
                        first + index,
                        leading_words(said[: LONGEST + 1].decode("utf-8", "replace"), LONGEST),
                        line[:HEAD].decode("utf-8", "replace"),
                        before.printed + 1 if before else 1,
                    )
