"""The waves of a rollout: one canary for each kind of node, one after the other, then waves that
grow within the limits. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unhang.act.plan.plan_document import CANARY, Wave
from unhang.core.run.run_input import natural

GROWTH = 2
# (whether they are busy, their limited groups) -> hosts
Queues = dict[tuple[bool, tuple[int, ...]], list[str]]


@dataclass(frozen=True)
class WaveLimits:
    """max_unavailable: nodes out of service at once, at least 1. groups: (limit, members) of each
    limited group, limit at least 1. busy: hosts with jobs, or whose jobs are not known."""

    max_unavailable: int
    groups: tuple[tuple[int, frozenset[str]], ...] = ()
    busy: frozenset[str] = frozenset()


def plan_waves(kinds: Mapping[str, str], limits: WaveLimits) -> list[Wave]:
    """The waves of these hosts, each host in exactly one. kinds: host -> its kind of hardware and
    image.

    Idle hosts come before busy ones, so that users wait last; else the order is natural. The first
    host of each kind is a canary. Each canary is a wave of its own: what is wrong with the change
    itself costs one node, however mixed the fleet.

    The first wave after the canaries has at most twice as many hosts as there are kinds, each later
    one at most twice the limit of the wave before. A wave is smaller only if limits of groups
    exclude every other host.
    """
    hosts = sorted(kinds, key=lambda host: (host in limits.busy, natural(host)))
    first_of_kind: dict[str, str] = {}
    for host in hosts:
        first_of_kind.setdefault(kinds[host], host)
    canaries = set(first_of_kind.values())
    return _named(CANARY, [[host] for host in hosts if host in canaries]) + _named(
        "wave",
        _packed(
            [host for host in hosts if host not in canaries], limits, growing_from=len(canaries)
        ),
    )


def _named(name: str, waves: Sequence[Sequence[str]]) -> list[Wave]:
    return [
        Wave(f"{name} {number}", tuple(sorted(hosts, key=natural)))
        for number, hosts in enumerate(waves, 1)
    ]


def _packed(hosts: Sequence[str], limits: WaveLimits, growing_from: int) -> list[list[str]]:
    """The hosts of each wave, in order. growing_from: size before the first."""
    queues = _queues(hosts, limits)
    size, waves = growing_from, []
    while queues:
        size = min(size * GROWTH, limits.max_unavailable)
        waves.append(_take(queues, size, limits))
    return waves


def _queues(hosts: Sequence[str], limits: WaveLimits) -> Queues:
    """Hosts by whether they are busy and by the limited groups that they are in, last host first:
    the hosts of a queue have the same limits, so that no host is checked twice."""
    belongs: dict[str, list[int]] = {host: [] for host in hosts}
    for number, (_, members) in enumerate(limits.groups):
        for host in members & belongs.keys():
            belongs[host].append(number)
    queues: Queues = {}
    for host in reversed(hosts):
        queues.setdefault((host in limits.busy, tuple(belongs[host])), []).append(host)
    return dict(sorted(queues.items(), key=lambda one: (one[0][0], natural(one[1][-1]))))


def _take(queues: Queues, size: int, limits: WaveLimits) -> list[str]:
    """The next wave, removed from the queues: as many hosts as the limits allow."""
    room = [limit for limit, _ in limits.groups]
    wave: list[str] = []
    for key, queue in list(queues.items()):
        groups = key[1]
        count = min([size - len(wave), len(queue), *(room[group] for group in groups)])
        for group in groups:
            room[group] -= count
        wave += reversed(queue[len(queue) - count :])
        del queue[len(queue) - count :]
        if not queue:
            del queues[key]
        if len(wave) == size:
            break
    return wave
