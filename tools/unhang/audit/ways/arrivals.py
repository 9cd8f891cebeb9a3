"""Writes arrived documents to a run folder: each node once, the newest that is surely its own wins,
and what contradicts itself is reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from unhang.audit.ways.documents import Arrival, hostname_of
from unhang.core.ansible.printable_text import clean
from unhang.core.ansible.run_files import node_document, write_node
from unhang.core.together import NOT_READ
from unhang_node.base.parse.values import as_maps

LONGEST_HOST = 253
MOST_LINES = 1000  # of each kind, that are kept
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
AHEAD = timedelta(minutes=5)  # that the clock of a node may be


@dataclass(frozen=True)
class Meant:
    """What the inventory says of a host."""

    groups: list[str]
    policy: dict[str, Any]


@dataclass
class Arrived:
    """hosts: written, in the order in which they came, with what is known of the document that
    is kept; twice: hosts of several documents; claimed: hosts whose groups and policy were dropped;
    lines: conflicts, and documents that belong to no host; faults: documents that cannot be read
    and of which nobody knows whose they are."""

    hosts: dict[str, _Standing] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)
    claimed: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Identity:
    """What facts say of the machine; "" and no GPUs where they say nothing."""

    hostname: str
    machine: str
    gpus: frozenset[str]


@dataclass(frozen=True)
class _Standing:
    """when: "" for a time that nobody can trust; is_ahead: it is later than now; is_sure: that it
    is this host's."""

    place: str
    when: str
    is_ahead: bool
    is_sure: bool
    status: str
    groups: list[str]
    policy: dict[str, Any]
    identity: _Identity | None


def write_arrivals(
    run: Path, meant: Mapping[str, Meant] | None, arrivals: Iterable[tuple[str, Arrival]]
) -> Arrived:
    """meant: the inventory's hosts, None without an inventory; arrivals: (time of one of a run
    folder that has none itself, document). Raises OSError."""
    arrived = Arrived()
    for when, arrival in arrivals:
        _write(run, meant, when, arrival, arrived)
    return arrived


def _write(
    run: Path, meant: Mapping[str, Meant] | None, when: str, arrival: Arrival, arrived: Arrived
) -> None:
    host = _host_of(arrival, meant)
    if host is None or (arrival.node is None and host in arrived.hosts):
        known = (
            f"{clean(arrival.node['host'], 80)} is not a host of the inventory"
            if arrival.node
            else arrival.fault
        )
        # Only the first lines are shown, and the one that means that others never came is among
        # them.
        _add(
            arrived.lines if arrival.node else arrived.faults,
            f"{clean(arrival.place, 120)}: {known}",
            known.startswith(NOT_READ),
        )
        return
    node, fault = arrival.node, arrival.fault
    if other := _another(host, arrival, meant):
        node, fault = None, f"this is the answer of {clean(other, 80)}, not of {clean(host, 80)}"
    node = node or node_document(host, [], {}, "invalid", fault, None)
    given = Meant(node["groups"], node["policy"]) if meant is None else meant[host]
    node = {**node, "host": host, "groups": given.groups, "policy": given.policy}
    standing, before = _standing(arrival, when, node), arrived.hosts.get(host)
    counts = before is None or _rank(before) < _rank(standing)
    if before and before.status != "invalid":
        arrived.twice.add(host)
        _add_conflict(arrived.lines, host, *((before, standing) if counts else (standing, before)))
    if arrival.has_claims and meant is None:
        arrived.claimed.add(host)
    if counts:
        write_node(run, node, arrival.raw or None)
        arrived.hosts[host] = standing


def _add(lines: list[str], line: str, is_first: bool) -> None:
    if is_first and len(lines) < 2 * MOST_LINES:
        lines.insert(0, line)
    elif len(lines) < MOST_LINES:
        lines.append(line)


def _host_of(arrival: Arrival, meant: Mapping[str, Meant] | None) -> str | None:
    """The host whose document it is: in the inventory by the file's name, else by the node's own
    name, with or without its domain."""
    named = str(arrival.node["host"]) if arrival.node else ""
    if meant is None:
        host = named or arrival.stem
        return host if 0 < len(host) <= LONGEST_HOST else None
    return next(
        (one for one in (arrival.stem, named, named.partition(".")[0]) if one in meant), None
    )


def _another(host: str, arrival: Arrival, meant: Mapping[str, Meant] | None) -> str | None:
    """The other host of the inventory that this file's document calls itself."""
    facts = (arrival.node or {}).get("facts")
    name = hostname_of(facts) if facts and meant else ""
    others = [one for one in (name, name.partition(".")[0]) if meant and one in meant]
    return others[0] if others and host not in others else None


def _standing(arrival: Arrival, when: str, node: dict[str, Any]) -> _Standing:
    facts, host = node["facts"], node["host"]
    identity = _identity(facts) if facts else None
    said = facts["collector"].get("collected_at") if facts else None
    read_at = said if isinstance(said, str) and TIME.fullmatch(said) else ""
    is_ahead = read_at > (datetime.now(UTC) + AHEAD).strftime("%Y-%m-%dT%H:%M:%SZ")
    known = read_at if read_at and not is_ahead else when if arrival.is_of_run else ""
    hostname = identity.hostname if identity else ""
    is_sure = (
        arrival.is_of_run
        or host in (arrival.stem, hostname, _short(hostname))
        or _short(host) == hostname
    )
    return _Standing(
        arrival.place,
        known,
        is_ahead,
        is_sure,
        node["status"],
        node["groups"],
        node["policy"],
        identity,
    )


def _identity(facts: dict[str, Any]) -> _Identity:
    """Types are checked when the node is judged, so there may be any here."""
    sections = facts["sections"]
    machine = sections.get("node", {}).get("machine_id")
    rows = [one.get("uuid") for one in as_maps(sections.get("gpus", {}).get("devices"))]
    return _Identity(
        hostname_of(facts),
        machine if isinstance(machine, str) else "",
        frozenset(one for one in rows if isinstance(one, str)),
    )


def _short(name: str) -> str:
    return name.partition(".")[0]


def _rank(standing: _Standing) -> tuple[bool, bool, str]:
    """The order of documents of one node: what cannot be read never replaces an answer, nor does
    what may be another node's replace its own."""
    return (standing.status != "invalid", standing.is_sure, standing.when)


def _add_conflict(lines: list[str], host: str, other: _Standing, counts: _Standing) -> None:
    """One line if two documents of a node are more than an older and a newer look at it; first
    where they are of two machines."""
    machines = (
        _two_machines(counts.identity, other.identity) if counts.identity and other.identity else ""
    )
    if what := machines or _difference(counts, other):
        places = f"{clean(other.place, 120)} and {clean(counts.place, 120)}"
        _add(
            lines,
            f"{clean(host, 80)} is in {places}: {what}; that of {clean(counts.place, 120)} counts",
            bool(machines),
        )


def _two_machines(one: _Identity, other: _Identity) -> str:
    if one.machine and other.machine and one.machine != other.machine:
        return "two machines answer by this name"
    if one.gpus and other.gpus and not one.gpus & other.gpus:
        return "two machines answer by this name, or all GPUs were replaced"
    if one.hostname and other.hostname and _short(one.hostname) != _short(other.hostname):
        return f"they call themselves {clean(one.hostname, 80)} and {clean(other.hostname, 80)}"
    return (
        "only one of them says which machine it is"
        if bool(one.machine) != bool(other.machine)
        else ""
    )


def _difference(one: _Standing, other: _Standing) -> str:
    if one.status != other.status:
        return f"{other.status} in the one, {one.status} in the other"
    if one.is_ahead or other.is_ahead:
        return "a time later than now is no reason to count"
    if (one.groups, one.policy) != (other.groups, other.policy):
        return f"different {'groups' if one.groups != other.groups else 'policies'}"
    return ""
