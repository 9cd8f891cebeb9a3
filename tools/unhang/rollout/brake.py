"""The brake: whether the next batch may begin, and who of it. It counts verdicts; a node without one counts as failed. States in, decisions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from unhang.errors import UserError
from unhang.rollout.standing import Standing
from unhang.rollout.steps import FINAL

CANARY_LIMIT = 0
SHOWN = 8


@dataclass(frozen=True)
class Limit:
    """At most so many of these hosts are out of service at a time. name: of the rack, partition or group, for the message; why: the message itself."""

    name: str
    hosts: Set[str]
    out_of_service: int
    why: str = ""


@dataclass(frozen=True)
class Limits:
    """failed: how many nodes may end without being proved before nothing new is begun; of the canaries none. groups: how many may be out of service."""

    failed: int = 0
    canaries: Set[str] = frozenset()
    groups: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class Admission:
    """begin: the batch, in the plan's order; postponed: {host: why}; stopped: why nothing new is changed in any of them.

    Who has something of ours on it is in `begin` whatever speaks against it, so that it comes to an end."""

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
    raise UserError(f"expected a number of nodes or a share such as 5%, found {given!r}")


def stop_reason(standing: Standing, wave: int, limits: Limits) -> str | None:
    """Why nothing new may be changed in this wave (counted from 0), None when it may."""
    if lost := standing.lost(wave):
        return f"not brought back, or no answer after it was changed: {_listed(lost)}"
    failed = standing.unproved(wave)
    canaries = [host for host in failed if host in limits.canaries]
    if len(canaries) > CANARY_LIMIT:
        return f"not proved healthy among the canaries: {_listed(canaries)}"
    if put_off := [host for host in standing.put_off(wave) if host in limits.canaries]:
        return f"not proved healthy among the canaries, for it was put off: {_listed(put_off)}"
    if len(failed) > limits.failed:
        return f"not proved healthy: {_listed(failed)}; at most {limits.failed} may be"
    return None


def admit(standing: Standing, wave: int, limits: Limits) -> Admission:
    """Who of the wave may begin. Who is under way already stays; who would be one too many out of service waits for another run."""
    stopped, rooms = stop_reason(standing, wave, limits), (_Room(limits.groups, standing.out), _floor(standing))
    begin, postponed = [], dict[str, str]()
    for host in standing.waves[wave]:
        node = standing.node(host)
        if node.state in FINAL:
            continue
        full = next((why for room in rooms if not room.has_in(host) and (why := room.why_full(host))), None)
        if full:
            postponed[host] = full
        elif not stopped:
            for room in rooms:
                room.put_in(host)
        if node.touched or not (full or stopped):
            begin.append(host)
    return Admission(tuple(begin), postponed, stopped)


def why_not(standing: Standing, host: str, wave: int, limits: Limits) -> str | None:
    """Why nothing new may be changed on this host of the wave, None when it may. Who is drained already is not one too many."""
    node = standing.node(host)
    if node.drained and host not in _undrained(standing):
        return stop_reason(standing, wave, limits)
    admitted = admit(standing, wave, limits)
    return admitted.stopped or admitted.postponed.get(host)


def _undrained(standing: Standing) -> Set[str]:
    """Hosts that were taken for drained, are in service by the scheduler, and have not been drained by this controller since."""
    listed = standing.floor.undrained if standing.floor else ()
    return {host for host in listed if not (node := standing.node(host)).changed and "drain" not in node.done}


def _floor(standing: Standing) -> _Room:
    """The floor as a limit on the hosts of the rollout, where the scheduler said who is in service."""
    floor = standing.floor
    return _Room([] if floor is None else [Limit("the floor", standing.places.keys(), floor.most, floor.why)], standing.out - _undrained(standing))


class _Room:
    """How many of each limit's hosts are out of service, with those of the wave that are to begin."""

    def __init__(self, limits: Sequence[Limit], out: Set[str]) -> None:
        self.limits, self.out, self.added = limits, out, set[str]()
        self.taken = [len(limit.hosts & out) for limit in limits]
        self.full: dict[int, str] = {}  # a limit that is full stays so, with the same hosts

    def has_in(self, host: str) -> bool:
        return host in self.out or host in self.added

    def why_full(self, host: str) -> str | None:
        """Why the host would be one too many."""
        full = next((at for at, one in enumerate(self.limits) if host in one.hosts and self.taken[at] >= one.out_of_service), None)
        if full is not None and full not in self.full:
            self.full[full] = self._full_message(full)
        return None if full is None else self.full[full]

    def put_in(self, host: str) -> None:
        if not self.has_in(host):
            self.added.add(host)
            for at, limit in enumerate(self.limits):
                self.taken[at] += host in limit.hosts

    def _full_message(self, full: int) -> str:
        limit = self.limits[full]
        if limit.why:
            return limit.why
        found = _listed(sorted((self.out | self.added) & limit.hosts))
        return f"expected at most {limit.out_of_service} nodes of {limit.name} out of service, found {found}"


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:SHOWN]) + (f" and {len(hosts) - SHOWN} more" if len(hosts) > SHOWN else "")
