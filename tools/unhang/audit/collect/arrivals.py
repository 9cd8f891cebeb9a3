"""Writes arrived documents to a run folder: each node once, the newest wins, and what contradicts itself is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.ansible.printable_text import clean
from unhang.ansible.run_files import node_document, write_node
from unhang.audit.collect.documents import Arrival, hostname_of

LONGEST_HOST = 253
MOST_LINES = 1000  # of each kind, that are kept


@dataclass(frozen=True)
class Meant:
    """What the inventory says of a host."""

    groups: list[str]
    policy: dict[str, Any]


@dataclass
class Arrived:
    """hosts: written, in the order in which they came, with what is known of the document that stands; twice: hosts of several documents;
    lines: conflicts, and documents that belong to no host; faults: documents that cannot be read and of which nobody knows whose they are.
    """

    hosts: dict[str, _Standing] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Standing:
    place: str
    when: str
    status: str
    groups: list[str]
    policy: dict[str, Any]
    machine: str | None


def write_arrivals(run: Path, meant: Mapping[str, Meant] | None, arrivals: Iterable[tuple[str, Arrival]]) -> Arrived:
    """meant: the inventory's hosts, None without an inventory; arrivals: (time of one that has none itself, document). Raises OSError."""
    arrived = Arrived()
    for when, arrival in arrivals:
        _write(run, meant, when, arrival, arrived)
    return arrived


def _write(run: Path, meant: Mapping[str, Meant] | None, when: str, arrival: Arrival, arrived: Arrived) -> None:
    host = _host_of(arrival, meant)
    if host is None or (arrival.node is None and host in arrived.hosts):
        known = f"expected a host of the inventory, found {clean(arrival.node['host'], 80)}" if arrival.node else arrival.fault
        lines = arrived.lines if arrival.node else arrived.faults
        lines += [f"{clean(arrival.place, 120)}: {known}"] if len(lines) < MOST_LINES else []
        return
    node = arrival.node or node_document(host, [], {}, "invalid", arrival.fault, None)
    if other := _another(host, arrival, meant):
        node = node_document(host, [], {}, "invalid", f"expected the answer of {clean(host, 80)}, found that of {clean(other, 80)}", None)
    given = Meant(node["groups"], node["policy"]) if meant is None else meant[host]
    node = {**node, "host": host, "groups": given.groups, "policy": given.policy}
    standing = _standing(arrival.place, when, node)
    before = arrived.hosts.get(host)
    if before and before.status != "invalid":
        arrived.twice.add(host)
        arrived.lines += _conflict(host, before, standing) if len(arrived.lines) < MOST_LINES else []
    if before is None or _rank(before) < _rank(standing):
        write_node(run, node, arrival.raw or None)
        arrived.hosts[host] = standing


def _host_of(arrival: Arrival, meant: Mapping[str, Meant] | None) -> str | None:
    """The host whose document it is: in the inventory by the file's name, else by the node's own name, with or without its domain."""
    named = str(arrival.node["host"]) if arrival.node else ""
    if meant is None:
        host = named or arrival.stem
        return host if 0 < len(host) <= LONGEST_HOST else None
    return next((one for one in (arrival.stem, named, named.partition(".")[0]) if one in meant), None)


def _another(host: str, arrival: Arrival, meant: Mapping[str, Meant] | None) -> str | None:
    """The other host of the inventory that this file's document calls itself."""
    facts = (arrival.node or {}).get("facts")
    name = hostname_of(facts) if facts and meant else ""
    others = [one for one in (name, name.partition(".")[0]) if meant and one in meant]
    return others[0] if others and host not in others else None


def _standing(place: str, when: str, node: dict[str, Any]) -> _Standing:
    facts = node["facts"] or {"collector": {}, "sections": {}}
    machine = facts["sections"].get("node", {}).get("machine_id")
    read_at = facts["collector"].get("collected_at")
    return _Standing(place, read_at if isinstance(read_at, str) else when, node["status"], node["groups"], node["policy"], machine)


def _rank(standing: _Standing) -> tuple[bool, str]:
    """The order of documents of one node: what cannot be read never replaces an answer."""
    return (standing.status != "invalid", standing.when)


def _conflict(host: str, one: _Standing, other: _Standing) -> list[str]:
    """One line if two documents of a node are more than an older and a newer look at it."""
    older, newer = sorted((one, other), key=_rank)
    if older.machine and newer.machine and older.machine != newer.machine:
        what = "two machines answer by this name"
    elif older.status != newer.status:
        what = f"{older.status} in the one, {newer.status} in the other"
    elif (older.groups, older.policy) != (newer.groups, newer.policy):
        what = f"different {'groups' if older.groups != newer.groups else 'policies'}"
    else:
        return []
    return [f"{clean(host, 80)} is in {clean(older.place, 120)} and {clean(newer.place, 120)}: {what}; the newer one counts, that of {clean(newer.place, 120)}"]
