"""Chooses the address of the rendezvous: one of the first node's that every other node can reach
and from which answers arrive. Values in, values out."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from unhang_node.base.parse.values import as_maps, number_of

# Interfaces that exist on every node and reach no other node.
REFUSED_NAMES = (
    "docker",
    "br-",
    "virbr",
    "veth",
    "cni",
    "flannel",
    "cali",
    "podman",
    "lxc",
    "lxd",
    "kube",
    "nodelocaldns",
    "vboxnet",
    "tunl",
    "dummy",
)
REFUSED_KINDS = ("loopback", "dummy", "vxlan", "ipip", "sit")
NO_WAY = ("unreachable", "blackhole", "prohibit", "throw")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Meeting:
    """host opens the store at address. interfaces: the interface by which each node reaches it (and
    is reached). why: for a person."""

    host: str
    address: str
    interface: str
    interfaces: Mapping[str, str]
    why: str


class NoMeeting(Exception):
    """No address is usable; the text gives the reason for each."""


def choose_meeting(surveys: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> Meeting:
    """The best address of hosts[0]. surveys: what `survey` of the payload answered, by host. Raises
    NoMeeting."""
    first = hosts[0]
    # Several nodes of a scheduler on one machine share its network: there is nothing to reach.
    others = [host for host in hosts[1:] if not _same_network(surveys[first], surveys[host])]
    refused: list[str] = []
    fitting: list[tuple[int, int, int, Meeting]] = []
    for name, address, ill in _candidates(surveys[first]):
        reason = ill or _elsewhere(address, surveys, others)
        ways: dict[str, str] = dict.fromkeys(hosts, name)
        routed = 0
        for host in [] if reason else others:
            way = _way(surveys[host], address)
            reason = way.problem and f"{host} {way.problem}"
            reason = reason or _no_route_back(
                surveys[first], surveys[host], way.interface, address, host
            )
            if reason:
                break
            ways[host], routed = way.interface, routed + way.gateway
        if reason:
            refused.append(f"{address} ({name}): {reason}")
        else:
            meeting = Meeting(
                first,
                str(address),
                name,
                ways,
                _reason(name, address, len(others), routed, refused),
            )
            fitting.append((routed, address.version, len(fitting), meeting))
    if not fitting:
        raise NoMeeting(
            f"no address of {first} is reached by all nodes:"
            f" {'; '.join(refused) or 'it has no address'}"
        )
    return min(fitting, key=lambda one: one[:3])[3]


def other_interfaces(surveys: Mapping[str, Mapping[str, Any]], used: str) -> list[str]:
    """Names of interfaces that lead somewhere on every node, without the one in use: worth a try
    when that one fails."""
    usable = [
        {name for name, _, ill in _candidates(survey) if ill is None} for survey in surveys.values()
    ]
    return sorted(set.intersection(*usable) - {used}) if usable else []


def _same_network(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return isinstance(one.get("network"), str) and one.get("network") == other.get("network")


def _reason(name: str, address: Address, others: int, routed: int, refused: Sequence[str]) -> str:
    if not others:
        return f"interface {name}, one machine alone"
    way = "on the link" if not routed else f"{routed} of {others} through a gateway"
    passed = f"; refused {', '.join(refused[:4])}" if refused else ""
    return (
        f"interface {name}: the other {others} nodes have a route to {address} and it has one back,"
        f" {way}{passed}"
    )


class Interface(NamedTuple):
    """An interface of a node, with its addresses that can be read."""

    name: str
    kind: str
    is_up: bool
    places: list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]


def _interfaces(survey: Mapping[str, Any]) -> Iterator[Interface]:
    for row in as_maps(survey.get("interfaces")):
        places = [place for text in row.get("addresses") or [] if (place := _interface(text))]
        yield Interface(str(row.get("name")), str(row.get("kind")), row.get("up") is True, places)


def _interface(text: Any) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    try:
        return ipaddress.ip_interface(str(text))
    except ValueError:
        return None


def _candidates(survey: Mapping[str, Any]) -> Iterator[tuple[str, Address, str | None]]:
    """(interface, address, why not) of each address that a node has."""
    for one in _interfaces(survey):
        for place in one.places:
            yield one.name, place.ip, _ill(one.name, one.kind, one.is_up, place.ip)


def _ill(name: str, kind: str, up: bool, address: Address) -> str | None:
    if address.is_loopback or kind == "loopback":
        return "loopback reaches nobody else"
    if name.startswith(REFUSED_NAMES) or kind in REFUSED_KINDS:
        return "a container or virtual bridge of this node alone"
    if address.is_link_local:
        return "link-local"
    return None if up else "the interface is down"


def _elsewhere(
    address: Address, surveys: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]
) -> str | None:
    """A bridge that every node has, such as docker0, has the same address everywhere, so it cannot
    be reached from other nodes."""
    for host in hosts:
        if any(place.ip == address for one in _interfaces(surveys[host]) for place in one.places):
            return f"{host} has the same address"
    return None


@dataclass(frozen=True)
class _Way:
    interface: str = ""
    gateway: bool = False
    problem: str | None = None


def _way(survey: Mapping[str, Any], target: Address) -> _Way:
    """By which interface a node sends to an address: the longest prefix, then the lowest metric."""
    best: tuple[int, float, dict[str, Any]] | None = None
    for row in as_maps(survey.get("routes")):
        if row.get("type") in ("local", "broadcast", "multicast", "anycast"):
            continue
        network = _network(row.get("dst"), target.version)
        if network is None or target not in network:
            continue
        weight = (-network.prefixlen, number_of(row.get("metric")))
        if best is None or weight < best[:2]:
            best = (*weight, row)
    if best is None:
        return _Way(problem=f"has no route to {target}")
    row = best[2]
    if row.get("type") in NO_WAY:
        return _Way(problem=f"has a route to {target} of type {row['type']}")
    name = str(row.get("dev"))
    up = {one.name: one.is_up for one in _interfaces(survey)}
    if name == "lo" or name.startswith(REFUSED_NAMES):
        return _Way(problem=f"would send to {target} into {name}, which leads to no other node")
    if not up.get(name, False) or "linkdown" in (row.get("flags") or []):
        return _Way(problem=f"would send to {target} by {name}, which is down")
    return _Way(name, "gateway" in row)


def _network(text: Any, version: int) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if text == "default":
        text = "0.0.0.0/0" if version == 4 else "::/0"
    try:
        network = ipaddress.ip_network(str(text), strict=False)
    except ValueError:
        return None
    return network if network.version == version else None


def _no_route_back(
    first: Mapping[str, Any], other: Mapping[str, Any], interface: str, address: Address, host: str
) -> str | None:
    """Why what `other` sends from this interface would not be answered."""
    sources = [
        place.ip for one in _interfaces(other) if one.name == interface for place in one.places
    ]
    sources = [
        source
        for source in sources
        if source.version == address.version and not source.is_link_local
    ]
    if not sources:
        return f"{host} has no address on {interface}"
    problems = [_way(first, source).problem for source in sources]
    return None if None in problems else f"there is no way back to {host}: {problems[0]}"
