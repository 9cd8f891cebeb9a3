"""Phases storm and overlap: many collectives in a row, and on two groups at once."""

from __future__ import annotations

from typing import Any

from .groups import OverlapGroups
from .operations import gather_whole, scatter_sum
from .pattern import wrong_elements
from .recording import logs_of_others
from .run import Failed, Run


def phase_storm(run: Run) -> None:
    """Runs many barriers one after the other, many small messages, few large ones."""
    torch, dist = run.torch, run.dist
    options = {"device_ids": [run.device.index]} if run.device.type == "cuda" else {}
    for number in range(30):
        run.collective("barrier %d of 30" % (number + 1), lambda: dist.barrier(**options))
    small = torch.ones(64, device=run.device)

    def many() -> None:
        for _ in range(200):
            small.fill_(1)
            dist.all_reduce(small)

    run.collective("200 small all_reduces", many)
    wrong = wrong_elements(torch, small, torch.full_like(small, run.world))
    elements = run.scaled(16 << 20, 4, 4)
    large = torch.ones(elements, device=run.device)
    for number in range(3):
        large.fill_(1)
        run.collective(
            "large all_reduce %d of 3" % (number + 1),
            lambda: dist.all_reduce(large),
            size_bytes=elements * 4,
        )
    wrong += wrong_elements(torch, large, torch.full_like(large, run.world))
    if wrong:
        raise Failed(
            "expected %d in every element after the storm, found %d wrong elements"
            % (run.world, wrong),
            wrong=wrong,
        )


def phase_overlap(run: Run) -> None:
    """Collectives in flight on two process groups at once: two groups of the whole world, then a
    mesh, as sharding within and between nodes uses it."""
    groups = run.groups or OverlapGroups(run)
    groups.await_all(run)
    wrong = overlap_twice(run, groups.second)
    if groups.mesh:
        with logs_of_others(run):
            wrong += overlap_on_mesh(run, groups.mesh)
    run.step("leave the groups", 15 + run.world * 0.05)
    groups.destroy(run)
    run.groups = None
    if wrong:
        raise Failed(
            "expected exact results on both groups, found %d wrong elements" % wrong, wrong=wrong
        )


def overlap_elements(run: Run) -> int:
    """Of each message."""
    return min(1 << 20, (run.plan.get("max_bytes") or 1 << 30) // 4)


def overlap_twice(run: Run, second_group: Any) -> int:
    """Reductions of the whole world on its own group and on a second one. Returns wrong elements of
    both."""
    torch, dist, elements = run.torch, run.dist, overlap_elements(run)
    first, second = (torch.empty(elements, device=run.device) for _ in range(2))

    def both() -> None:
        first.fill_(1)
        second.fill_(2)
        works = [
            dist.all_reduce(held, group=group, async_op=True)
            for held, group in ((first, None), (second, second_group))
        ]
        for work in works:
            work.wait()

    for number in range(10):
        run.collective("two groups at once, %d of 10" % (number + 1), both, size_bytes=elements * 8)
    return sum(
        wrong_elements(torch, held, torch.full_like(held, value * run.world))
        for held, value in ((first, 1), (second, 2))
    )


def overlap_on_mesh(run: Run, mesh_groups: list[tuple[list[int], Any]]) -> int:
    """A gather within one half during a reduction between every second rank. Returns the wrong
    elements of both."""
    torch, share = run.torch, overlap_elements(run) // run.world
    (near, near_group), (far, far_group) = mesh_groups
    part = torch.full((share,), float(run.rank), device=run.device)
    whole = torch.empty(share * len(near), device=run.device)
    summed = torch.empty(share, device=run.device)
    terms = torch.arange(len(far), device=run.device).repeat_interleave(share).float()

    def both() -> None:
        gathered = gather_whole(run, whole, part, group=near_group, async_op=True)
        reduced = scatter_sum(run, summed, terms, group=far_group, async_op=True)
        gathered.wait()
        reduced.wait()

    for number in range(5):
        run.collective(
            "gather and reduce on a mesh, %d of 5" % (number + 1),
            both,
            size_bytes=share * run.world * 4,
        )
    wrong = wrong_elements(
        torch, summed, torch.full_like(summed, float(far.index(run.rank) * len(far)))
    )
    return wrong + wrong_elements(
        torch, whole, torch.tensor(near, device=run.device).repeat_interleave(share).float()
    )
