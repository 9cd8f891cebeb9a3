"""Which answer of NCCL's RAS counts for a job, and which rank each process is. Values in, values
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.job import RankLook, waiting_ranks
from unhang.jobs.inspect.evidence import NodeEvidence
from unhang.jobs.ras_counts import (
    Key,
    communicator_rows,
    places_of,
    ranks_by_largest,
    standing_between,
)


def standing_of(nodes: Sequence[NodeEvidence], looks: Sequence[RankLook]) -> Standing:
    """The answer of the node whose RAS answered oftenest; without a version when none did. Every
    RAS answers for the whole job."""
    best = max(nodes, key=lambda node: len(node.ras), default=None)
    if best is None or not best.ras:
        return Standing()
    own = [look for look in looks if look.host == best.host]
    first, last = best.ras[0], best.ras[-1]
    names = global_ranks(last, own, looks)
    # who launches takes processor time
    asleep = {look.rank for look in looks if look.waited and look.cpu == 0}
    return standing_between(first, last, names, asleep, waiting_ranks(looks))


def global_ranks(
    answer: Mapping[str, Any], own: Sequence[RankLook], looks: Sequence[RankLook]
) -> dict[Key, int]:
    """{(host, pid): rank of the job}; what the nodes say of their own processes comes first."""
    names = ranks_by_largest(answer)
    by_pid: dict[int, list[int]] = {}
    for look in looks:
        if look.rank is not None:
            by_pid.setdefault(look.own_pid, []).append(look.rank)
    communicators = communicator_rows(answer)
    for row in communicators:
        for one in places_of(row):
            ranks = by_pid.get(one[2], [])
            if len(ranks) == 1 and (
                len(looks) > len(own)
                or names.get((str(one[1]), one[2]), ranks[0]) == ranks[0]
                or len(communicators) > 1
            ):
                names[str(one[1]), one[2]] = ranks[0]
    return names
