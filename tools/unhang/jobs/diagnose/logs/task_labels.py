"""Which rank a launcher's label before a line stands for: `1:` of srun --label, `[default1]` of
torchrun, `[1,1]<stdout>` of mpirun. A label counts the tasks of a step or of a node; only by chance
has the rank of the job the same number.

Readers keep a row whose line has nothing but a label under the label's complement, ~1, until the
file is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Protocol, TypeVar


class OfALine(Protocol):
    """A row that was read in a line of the file."""

    @property
    def line(self) -> int: ...


Row = TypeVar("Row", bound=OfALine)
_WITH_RANKS = (
    re.compile(rb"(?m)^ {0,4}(\d{1,6}): [^\n]{0,80}?\[rank(\d{1,6})\]"),
    re.compile(rb"\[default(\d{1,6})\][^\n]{0,80}?\[rank(\d{1,6})\]"),
    re.compile(rb"\[1,(\d{1,6})\]<std[^\n]{0,80}?\[rank(\d{1,6})\]"),
)


_NUMBERED, _BELOW = re.compile(rb"(?m)^ {0,4}\d{1,5}: "), re.compile(rb"(?m)^[ \t]+(?!\d{1,5}: )\S")


def are_numbers_of_a_list(text: bytes) -> bool:
    """Whether numbers begin lines as those of `ip addr` do, which count the entries of a list: a
    launcher labels each line, also one that is indented."""
    return len(_BELOW.findall(text)) >= len(_NUMBERED.findall(text)) > 0


@dataclass
class Labels:
    """of_file: the rank of all labels. ranks: label -> the rank that its lines name themselves;
    None where they name several. differ: whether a label is not the number of its rank."""

    of_file: int | None = None
    ranks: dict[int, int | None] = field(default_factory=dict)
    differ: bool = False

    def note(self, text: bytes) -> None:
        """Adds the labels of a block that come before a rank."""
        if b"[rank" not in text:
            return
        for pattern in _WITH_RANKS:
            for label, named in pattern.findall(text):
                task, rank = int(label), int(named)
                self.ranks[task] = rank if self.ranks.get(task, rank) == rank else None
                self.differ = self.differ or self.ranks[task] != task

    def rank_of(self, number: int | None) -> int | None:
        """The rank of ~label: the label itself, if nothing shows that they differ; None if it is
        not known. Any other number as it is."""
        if number is None or number >= 0:
            return number
        if self.of_file is not None:
            return self.of_file
        return self.ranks.get(~number, None if self.differ else ~number)

    def by_rank(self, rows: Mapping[int, Row]) -> dict[int, Row]:
        """{rank: row} of {rank or ~label: row}; of several rows of a rank the last one."""
        named = [(row.line, self.rank_of(number), row) for number, row in rows.items()]
        return {
            rank: row for _, rank, row in sorted(named, key=itemgetter(0)) if rank is not None
        }  # fmt: skip
