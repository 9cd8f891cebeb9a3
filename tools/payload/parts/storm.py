"""Phases storm and overlap: many collectives in a row, and on two groups at once."""

from __future__ import annotations

from .pattern import wrong_elements
from .run import Failed


def phase_storm(run):
    """Barriers back to back, many small messages, few large ones."""
    torch, dist = run.torch, run.dist
    options = {"device_ids": [run.device.index]} if run.device.type == "cuda" else {}
    for number in range(30):
        run.collective("barrier %d of 30" % (number + 1), lambda: dist.barrier(**options))
    small = torch.ones(64, device=run.device)

    def many():
        for _ in range(200):
            small.fill_(1)
            dist.all_reduce(small)

    run.collective("200 small all_reduces", many)
    wrong = wrong_elements(torch, small, torch.full_like(small, run.world))
    elements = run.scaled(16 << 20, 4, 4)
    large = torch.ones(elements, device=run.device)
    for number in range(3):
        large.fill_(1)
        run.collective("large all_reduce %d of 3" % (number + 1), lambda: dist.all_reduce(large), size_bytes=elements * 4)
    wrong += wrong_elements(torch, large, torch.full_like(large, run.world))
    if wrong:
        raise Failed("expected %d in every element after the storm, found %d wrong elements" % (run.world, wrong), wrong=wrong)


def phase_overlap(run):
    """Collectives in flight on two process groups at the same time."""
    torch, dist = run.torch, run.dist
    run.step("create two more groups", 15 + run.world * 0.05)
    groups = [dist.new_group(list(range(run.world))) for _ in range(2)]
    elements = min(1 << 20, (run.plan.get("max_bytes") or 1 << 30) // 4)
    first, second = (torch.empty(elements, device=run.device) for _ in range(2))

    def both():
        first.fill_(1)
        second.fill_(2)
        works = [dist.all_reduce(held, group=group, async_op=True) for held, group in zip((first, second), groups)]
        for work in works:
            work.wait()

    for number in range(10):
        run.collective("two groups at once, %d of 10" % (number + 1), both, size_bytes=elements * 8)
    wrong = sum(wrong_elements(torch, held, torch.full_like(held, value * run.world)) for held, value in ((first, 1), (second, 2)))
    for group in groups:
        dist.destroy_process_group(group)
    if wrong:
        raise Failed("expected exact sums on both groups, found %d wrong elements" % wrong, wrong=wrong)
