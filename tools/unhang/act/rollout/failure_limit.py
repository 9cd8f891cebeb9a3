"""The failure limit: whether the next wave may begin, and which of its nodes. A node without a
verdict counts as failed. States in, decisions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.steps import FINAL, TO_COME
from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.text import counted, listed

CANARY_LIMIT = 0
SHOWN, LONGEST_LIST = 8, 200


@dataclass(frozen=True)
class Limit:
    """A maximum number of these hosts that are out of service at a time. name: of the rack,
    partition or group, for the message; why: the message itself."""

    name: str
    hosts: Set[str]
    out_of_service: int
    why: str = ""


@dataclass(frozen=True)
class Limits:
    """failed: how many nodes may end unproved before no further node is begun; no canary may.
    groups: limits of nodes out of service."""

    failed: int = 0
    canaries: Set[str] = frozenset()
    groups: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class Admission:
    """begin: the nodes of the wave that may begin, in the plan's order; postponed: {host: why};
    stopped: why no further node is changed. A node that this rollout has locked or changed is in
    `begin` in any case, so that it is completed."""

    begin: tuple[str, ...]
    postponed: Mapping[str, str]
    stopped: str | None


def allowed_failures(given: int | str, targeted: int) -> int:
    """A number, or a share of the targeted nodes ("5%", rounded down). Raises UserError."""
    text = str(given).strip()
    if text.isdigit():
        return int(text)
    if text.endswith("%") and text[:-1].isdigit() and int(text[:-1]) <= 100:
        return targeted * int(text[:-1]) // 100
    raise UserError(f"{given!r} is not a number of nodes or a share such as 5%")


def stop_reason(standing: RolloutState, wave: int, limits: Limits) -> str | None:
    """The reason why no further node may be changed in this wave (counted from 0), or None."""
    if lost := standing.lost(wave):
        return f"not brought back, or no answer after it was changed: {listed(lost, SHOWN)}"
    failed = standing.unproved(wave)
    canaries = [host for host in failed if host in limits.canaries]
    if len(canaries) > CANARY_LIMIT:
        return f"not proved healthy among the canaries: {_explained(standing, canaries)}"
    if put_off := [host for host in standing.put_off(wave) if host in limits.canaries]:
        return (
            f"not proved healthy among the canaries, for it was put off: {listed(put_off, SHOWN)}"
        )
    if len(failed) > limits.failed:
        return f"not proved healthy: {_explained(standing, failed)}; at most {limits.failed} may be"
    return None


def is_over(standing: RolloutState, limits: Limits) -> bool:
    """Whether no controller has anything to do: every node has ended, or may not begin."""
    for wave, hosts in enumerate(standing.waves):
        nodes = map(standing.node, hosts)
        left = {node.state for node in nodes if node.state not in FINAL or node.fell}
        if left and (left != {TO_COME} or not stop_reason(standing, wave, limits)):
            return False
    return standing.ended and not standing.is_lost


def admit(standing: RolloutState, wave: int, limits: Limits, ending: str = "") -> Admission:
    """The nodes of the wave that may begin. Nodes that have begun continue; a node that would
    exceed a limit waits for another run. ending: why the rollout ends here, "" if it goes on."""
    stopped, rooms = (
        ending or stop_reason(standing, wave, limits),
        (_Room(limits.groups, standing.out), _floor(standing)),
    )
    begin, postponed = [], dict[str, str]()
    for host in standing.waves[wave]:
        node = standing.node(host)
        if node.state in FINAL:
            continue
        full = next(
            (why for room in rooms if not room.has_in(host) and (why := room.why_full(host))), None
        )
        if full:
            postponed[host] = full
        elif not stopped:
            for room in rooms:
                room.put_in(host)
        if node.touched or not (full or stopped):
            begin.append(host)
    return Admission(tuple(begin), postponed, stopped)


def why_not(standing: RolloutState, host: str, wave: int, limits: Limits) -> str | None:
    """The reason why this host of the wave may not be drained or, if it is unchanged, changed; or
    None. A host that is already drained does not exceed a limit. A changed one is completed, but is
    drained anew only where the floor leaves room: a controller died as it released the host."""
    node = standing.node(host)
    stopped = None if node.changed else stop_reason(standing, wave, limits)
    if node.out_of_service and host not in _undrained(standing):
        return stopped
    return stopped or admit(standing, wave, limits).postponed.get(host)


def _undrained(standing: RolloutState) -> Set[str]:
    """Hosts that are drained by the journal and in service by the scheduler, and that this
    controller has not drained since."""
    return {
        host
        for host in (standing.floor.undrained if standing.floor else ())
        if "drain" not in standing.node(host).done
    }


def _floor(standing: RolloutState) -> _Room:
    """The floor as a limit on the hosts of the rollout, if the scheduler could list the nodes in
    service."""
    floor = standing.floor
    return _Room(
        ([Limit("the floor", standing.places.keys(), floor.most, floor.why)] if floor else []),
        standing.out - _undrained(standing),
    )


class _Room:
    """The number of each limit's hosts that are out of service, including those of the wave that
    will begin."""

    def __init__(self, limits: Sequence[Limit], out: Set[str]) -> None:
        self.limits, self.out, self.added = limits, out, set[str]()
        self.taken = [len(limit.hosts & out) for limit in limits]
        self.full: dict[int, str] = {}  # a full limit stays full, with the same hosts

    def has_in(self, host: str) -> bool:
        return host in self.out or host in self.added

    def why_full(self, host: str) -> str | None:
        """The reason why the host would exceed a limit, or None."""
        full = next(
            (
                at
                for at, one in enumerate(self.limits)
                if host in one.hosts and self.taken[at] >= one.out_of_service
            ),
            None,
        )
        if full is None:
            return None
        if full not in self.full:
            self.full[full] = self._full_message(full)
        return self.full[full]

    def put_in(self, host: str) -> None:
        if not self.has_in(host):
            self.added.add(host)
            for at, limit in enumerate(self.limits):
                self.taken[at] += host in limit.hosts

    def _full_message(self, full: int) -> str:
        limit = self.limits[full]
        if limit.why:
            return limit.why
        found = listed(sorted((self.out | self.added) & limit.hosts), SHOWN)
        return (
            f"more than {counted(limit.out_of_service, 'node')} of {limit.name} would be out of"
            f" service: {found}"
        )


def _explained(standing: RolloutState, hosts: Sequence[str]) -> str:
    return listed(
        [
            f"{host} (failed after its release)" if standing.node(host).fell else host
            for host in hosts
        ],
        SHOWN,
    )


def wave_line(admitted: Mapping[str, Any]) -> str:
    """The line at the beginning of a wave. admitted: as Conductor.begin_wave returns it."""
    begin, stopped = admitted["begin"], admitted["stopped"]
    postponed = dict[str, list[str]]()
    for host, why in sorted(admitted["postponed"].items()):
        postponed.setdefault(why, []).append(host)
    parts = (
        [
            f"{counted(len(begin), 'node')} {'to bring to an end' if stopped else 'to begin'},"
            f" {shortened(fold_hosts(begin), LONGEST_LIST)}"
        ]
        if begin
        else []
    )
    parts += [
        f"put off: {shortened(fold_hosts(hosts), LONGEST_LIST)}, {why}"
        for why, hosts in postponed.items()
    ]
    parts += [f"nothing new is begun, {stopped}"] if stopped else []
    return f"{admitted['wave']}: {'; '.join(parts) or 'nothing is left to do'}"
