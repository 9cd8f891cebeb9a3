"""Waves of a rollout: canaries first, one for each kind of node, then batches that grow, never more at once than the limits allow. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unhang.judge.run_input import natural
from unhang.plan.plan_document import CANARY, Wave

GROWTH = 2


@dataclass(frozen=True)
class WaveLimits:
    """max_unavailable: nodes out of service at once, at least 1. groups: (limit, members) of each limited group, limit at least 1."""

    max_unavailable: int
    groups: tuple[tuple[int, frozenset[str]], ...] = ()


def plan_waves(kinds: Mapping[str, str], limits: WaveLimits) -> list[Wave]:
    """The waves of these hosts, each host in exactly one. kinds: host -> its kind of hardware and image.

    The first host of each kind, in natural order, is a canary. The first batch after the canaries has at most twice as many hosts as there are kinds, each
    later one at most twice as many as the one before might have had. A wave is smaller only where limits of groups hold every other host back.
    """
    hosts = sorted(kinds, key=natural)
    first_of_kind: dict[str, str] = {}
    for host in hosts:
        first_of_kind.setdefault(kinds[host], host)
    canaries = set(first_of_kind.values())
    waves = _named(CANARY, _packed([host for host in hosts if host in canaries], limits, growing_from=None))
    return waves + _named("wave", _packed([host for host in hosts if host not in canaries], limits, growing_from=len(canaries)))


def _named(name: str, batches: Sequence[Sequence[str]]) -> list[Wave]:
    return [Wave(f"{name} {number}", tuple(sorted(hosts, key=natural))) for number, hosts in enumerate(batches, 1)]


def _packed(hosts: Sequence[str], limits: WaveLimits, growing_from: int | None) -> list[list[str]]:
    """Batches in order. growing_from: size before the first, None for batches as large as the limit."""
    queues = _queues(hosts, limits)
    size, batches = growing_from, []
    while queues:
        size = limits.max_unavailable if size is None else min(size * GROWTH, limits.max_unavailable)
        batches.append(_take(queues, size, limits))
    return batches


def _queues(hosts: Sequence[str], limits: WaveLimits) -> dict[tuple[int, ...], list[str]]:
    """Hosts by the limited groups that they are in, last host first: all of a queue meet the same limits, so that no host is looked at twice."""
    belongs: dict[str, list[int]] = {host: [] for host in hosts}
    for number, (_, members) in enumerate(limits.groups):
        for host in members & belongs.keys():
            belongs[host].append(number)
    queues: dict[tuple[int, ...], list[str]] = {}
    for host in reversed(hosts):
        queues.setdefault(tuple(belongs[host]), []).append(host)
    return dict(sorted(queues.items(), key=lambda one: natural(one[1][-1])))


def _take(queues: dict[tuple[int, ...], list[str]], size: int, limits: WaveLimits) -> list[str]:
    """The next batch, taken off the queues: as many as fit."""
    room = [limit for limit, _ in limits.groups]
    batch: list[str] = []
    for groups, queue in list(queues.items()):
        count = min([size - len(batch), len(queue), *(room[group] for group in groups)])
        for group in groups:
            room[group] -= count
        batch += reversed(queue[len(queue) - count :])
        del queue[len(queue) - count :]
        if not queue:
            del queues[groups]
        if len(batch) == size:
            break
    return batch
