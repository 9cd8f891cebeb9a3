"""Which group a watchdog's line means, and which ranks of the job are in it. Values in, values out.

torch numbers the members of a group in the order of their ranks in the job, so numbers and ranks
rise together. Groups of one mesh dimension may share a name; then their members tell them apart,
because each is a series of ranks with one stride.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

LOOKED_AT = 48  # members from which strides are taken
MOST_MEMBERS = 100_000
_LABEL = re.compile(r"\[PG (?P<group>[^\]]{0,160}?) ?Rank (?P<number>\d{1,6})\]")
_DESCRIBED = re.compile(r"(?P<name>.*?) ?\((?P<mesh>[^()]{1,64})\)$")
DEFAULT, DEFAULT_NAME = "default_pg", "0"


@dataclass(frozen=True)
class GroupLabel:
    """How a line names its group. name: the same on all ranks (PG GUID); the group of all ranks may
    have none. mesh: what it is for, ""
    if the line does not say. number: of the rank within it."""

    name: str
    mesh: str
    number: int

    @property
    def is_default(self) -> bool:
        """Whether it is the group of all ranks."""
        return self.mesh == DEFAULT or (self.name in ("", DEFAULT_NAME) and not self.mesh)


def parse_group_label(text: str) -> GroupLabel | None:
    """`[PG ID 3 PG GUID 12(mesh_tp) Rank 4]` of torch 2.5 and later, `[PG 12 (mesh_tp) Rank 4]` and
    `[PG 12 Rank 4]` of 2.3 and 2.4; None without one. A PG ID counts within one process."""
    if not (found := _LABEL.search(text)):
        return None
    group = found["group"]
    name = group.rpartition("GUID ")[2] if "GUID " in group else group.removeprefix("ID ")
    described = _DESCRIBED.match(name)
    number = int(found["number"])
    if described:
        return GroupLabel(described["name"].strip(), described["mesh"], number)
    return GroupLabel(name.strip(), "", number)


def split_by_stride(members: Iterable[tuple[int, int]]) -> list[dict[int, int]]:
    """{number: rank} of each group, from (number in the group, rank of the job) of groups that
    share a name; groups of one member where no stride parts them."""
    known = sorted(set(members))
    if all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(known)):
        return [dict(known)] if known else []
    strides = {
        (rank - other) // (number - before)
        for (before, other), (number, rank) in combinations(known[:LOOKED_AT], 2)
        if number > before and rank > other and (rank - other) % (number - before) == 0
    }
    parted = [_parted(known, stride) for stride in sorted(strides)]
    best = min(parted, key=len, default=[])
    if not best or len(best) * 2 > len(known):
        return [{number: rank} for number, rank in known]
    return best


def _parted(known: Sequence[tuple[int, int]], stride: int) -> list[dict[int, int]]:
    groups: dict[int, dict[int, int]] = {}
    for number, rank in known:
        groups.setdefault(rank - stride * number, {})[number] = rank
    return list(groups.values())


def stride_of(members: Mapping[int, int]) -> int | None:
    """The step from one member's rank to the next one's, if it is the same between all that are
    known; None for fewer than two."""
    steps = {
        divmod(rank - other, number - before)
        for (before, other), (number, rank) in pairwise(sorted(members.items()))
    }
    stride, rest = steps.pop() if len(steps) == 1 else (0, 0)
    return stride if stride > 0 and rest == 0 else None


def may_be_of_mesh(members: Sequence[int]) -> bool:
    """Whether a mesh of the job can have these ranks in one row: one stride, from where a row of
    that stride begins. Two neighbours that send to each other are mostly none."""
    stride = stride_of(dict(enumerate(members)))
    return stride is not None and members[0] % (stride * len(members)) < stride


def all_members(
    members: Mapping[int, int], size: int | None = None, stride: int | None = None
) -> tuple[int, ...]:
    """The ranks of a group by their number in it; () if they are not proven. members: {number:
    rank} of those that are known. size: of the group, otherwise it ends with the highest number.
    stride: of its siblings, for a group of which one member is known."""
    if not members:
        return ()
    whole = max(size or 0, max(members) + 1)
    if whole > MOST_MEMBERS:
        return ()
    if whole == len(members):
        return tuple(members[number] for number in range(whole))
    step = stride_of(members) if len(members) > 1 else stride
    number, rank = next(iter(members.items()))
    if not step or rank < step * number:
        return ()
    return tuple(rank + step * (other - number) for other in range(whole))
