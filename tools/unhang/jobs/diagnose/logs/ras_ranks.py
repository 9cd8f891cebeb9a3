"""Ranks of the job that NCCL's RAS does not number: its text lists few ranks of a communicator.
Values in, values out."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from itertools import pairwise

from unhang.jobs.diagnose.logs.group_numbers import stride_of
from unhang.jobs.ras_counts import Key


def ranks_by_neighbours(
    names: Mapping[Key, int], gpus: Mapping[Key, int], world_size: int
) -> dict[Key, int]:
    """{process: rank of the job} of processes that names does not have. Launchers start the ranks
    of a node in order, one on each GPU: a process is as many ranks after its neighbour as its GPU
    is, if their process numbers rise alike and nobody else has that rank. gpus: of all processes.
    """
    if not names and len(gpus) == world_size and len({host for host, _ in gpus}) == 1:
        in_order = sorted(gpus, key=lambda key: key[1])
        is_one_each = [gpus[key] for key in in_order] == [*range(world_size)]
        return dict(zip(in_order, range(world_size), strict=True)) if is_one_each else {}
    if not _in_order_of_gpus(names, gpus):
        return {}
    known = sorted(key for key in names if key in gpus)
    taken = {*names.values()}
    found: dict[Key, int] = {}
    for key in sorted(set(gpus) - set(names)):
        at = bisect(known, key)
        near = [one for one in known[max(at - 1, 0) : at + 1] if one[0] == key[0]]
        if not near:
            continue
        other = min(near, key=lambda one: (abs(one[1] - key[1]), one[1]))
        apart = gpus[key] - gpus[other]
        rank = names[other] + apart
        if apart * (key[1] - other[1]) > 0 and 0 <= rank < world_size and rank not in taken:
            found[key] = rank
            taken.add(rank)
    return found


def _in_order_of_gpus(names: Mapping[Key, int], gpus: Mapping[Key, int]) -> bool:
    """Whether ranks rise with the GPUs of a node, as far as they are known: where a scheduler deals
    them out to the nodes in turn they do not."""
    known = sorted(key for key in names if key in gpus)
    return all(
        names[other] - names[one] == gpus[other] - gpus[one]
        for one, other in pairwise(known)
        if one[0] == other[0] and gpus[other] > gpus[one]
    )


def members_by_stride(
    known: Mapping[int, int | None], size: int, world_size: int
) -> dict[int, int]:
    """{number in the communicator: rank of the job}, where one stride alone puts all its members
    into the job and agrees with those that are known; {} otherwise."""
    at = {number: rank for number, rank in known.items() if rank is not None and rank >= 0}
    if not at or size < 2:
        return {}
    number, rank = next(iter(at.items()))
    below = rank // number if number else world_size
    above = (world_size - 1 - rank) // (size - 1 - number) if number < size - 1 else world_size
    stride = stride_of(at) if len(at) > 1 else 1 if min(below, above) == 1 else None
    if stride is None or stride > min(below, above):
        return {}
    members = {place: rank + stride * (place - number) for place in range(size)}
    return members if all(members.get(one) == other for one, other in at.items()) else {}
