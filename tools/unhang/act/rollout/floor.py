"""Counts the nodes in service against the floor; nodes that others have drained count as out of
service. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from unhang.core.run.run_input import natural
from unhang.core.text import counted, listed, visible

SHOWN, LONGEST_REASON = 8, 60
NOT_LISTED = "not listed by its scheduler"


@dataclass(frozen=True)
class Service:
    """A fleet as its scheduler lists it. in_service: hosts that take jobs; out: {host: who took it
    out of service and why}; unknown: hosts of `out` of which the scheduler does not know yet."""

    in_service: Set[str] = frozenset()
    out: Mapping[str, str] = field(default_factory=dict)
    unknown: Set[str] = frozenset()


@dataclass(frozen=True)
class Floor:
    """most: number of the rollout's hosts that may be out of service at a time; why: the reason for
    this number, with the hosts that others took out. undrained: hosts that are drained by the
    journal and in service by the scheduler, because a controller died before it drained them."""

    most: int
    why: str
    undrained: Set[str] = frozenset()


def service_of(
    states: Mapping[str, Any], hosts: Collection[str], name_of: Callable[[str], str]
) -> Service:
    """The hosts of an inventory by the role drain's `drain_states`: {in_service: [name], out:
    {name: who and why}}.

    name_of: a host's name in the scheduler, called if the scheduler does not list the host's own
    name. A host that is not listed takes no jobs. Of hosts with one name only the first counts.
    """
    serving, out = set(states.get("in_service") or ()), states.get("out") or {}
    unknown = set(states.get("unknown") or ())
    first: dict[str, str] = {}
    for host in sorted(hosts, key=natural):
        first.setdefault(host if host in serving or host in out else name_of(host), host)
    names = {host: name for name, host in first.items()}
    return Service(
        frozenset(host for host, name in names.items() if name in serving),
        {
            host: str(out.get(name, NOT_LISTED))
            for host, name in names.items()
            if name not in serving
        },
        frozenset(host for host, name in names.items() if name in unknown),
    )


def floor_left(service: Service, ours: Set[str], floor: int) -> Floor:
    """The number of hosts that the floor leaves to the rollout. ours: hosts that the rollout has
    taken out of service, by its journal. Hosts in service above the floor may follow, so that the
    rollout never takes the fleet below it."""
    others = {host: why for host, why in service.out.items() if host not in ours}
    undrained = frozenset(ours & service.in_service)
    room = max(0, len(service.in_service) - floor)
    why = (
        f"at least {counted(floor, 'node')} must stay in service, and {len(service.in_service)}"
        f" are now{_named(others)}"
    )
    return Floor(len(ours - undrained) + room, why, undrained)


def floor_evidence(left: Floor) -> dict[str, Any]:
    return {"most": left.most, "why": left.why, "undrained": sorted(left.undrained)}


def floor_of(evidence: Mapping[str, Any]) -> Floor | None:
    """The floor from the journal; None if the scheduler could not be queried."""
    most, undrained = evidence.get("most"), evidence.get("undrained")
    if type(most) is not int or not isinstance(undrained, list):
        return None
    return Floor(most, str(evidence.get("why", "")), frozenset(map(str, undrained)))


def _named(others: Mapping[str, str]) -> str:
    if not others:
        return ""
    return (
        "; out of service by others:"
        f" {listed([f'{host} ({visible(why, LONGEST_REASON)})' for host, why in sorted(others.items())], SHOWN)}"  # noqa: E501
    )
