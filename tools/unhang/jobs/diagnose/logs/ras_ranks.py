"""Ranks of the job that NCCL's RAS does not number: its text lists few ranks of a communicator.
Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from unhang.core.verdict.communicators import Key


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
    found: dict[Key, int] = {}
    for key in sorted(set(gpus) - set(names)):
        near = [one for one in names if one[0] == key[0] and one in gpus]
        if not near:
            continue
        other = min(near, key=lambda one: (abs(one[1] - key[1]), one[1]))
        apart = gpus[key] - gpus[other]
        rank = names[other] + apart
        taken = {*names.values(), *found.values()}
        if apart * (key[1] - other[1]) > 0 and 0 <= rank < world_size and rank not in taken:
            found[key] = rank
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
    if not at or size < 1:
        return {}
    number, rank = next(iter(at.items()))
    fitting = []
    for stride in range(1, world_size // size + 1):
        first = rank - stride * number
        members = {place: first + stride * place for place in range(size)}
        fits = first >= 0 and members[size - 1] < world_size
        if fits and all(members.get(one) == other for one, other in at.items()):
            fitting.append(members)
    return fitting[0] if len(fitting) == 1 else {}
