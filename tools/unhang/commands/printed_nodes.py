"""Which files of a machine's tools are of one node: their facts are put together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from unhang.commands.printed_facts import Output, Printed
from unhang.jobs.diagnose.logs.rank_hosts import MACHINE

_LABEL = re.compile(r"([A-Za-z][\w.-]{0,60}\d): ")
_NUMBERED = re.compile(r"[A-Za-z][A-Za-z0-9-]*\d")


class Node(NamedTuple):
    """What files show of one machine. host: its name, if they tell it; name: in comparisons, "" if
    it may be one of the others; clash: what files of that host show with different values."""

    host: str
    printed: Printed
    name: str = ""
    clash: str = ""


def printed_nodes(files: Mapping[str, Sequence[str]]) -> list[Node]:
    """The nodes of the files that show facts. Files that contradict each other, or may be of one
    machine at two times, are not put together, nor compared."""
    beside = Counter(PurePath(file).name for file in files)
    outputs: dict[str, list[Output]] = {}
    told: set[str] = set()
    for label, one in (row for file, lines in files.items() for row in _by_host(file, lines)):
        path = PurePath(one.file)
        machine = MACHINE.search(path.name) or MACHINE.search(path.parent.name) or [""]
        host = label or Printed([one]).facts.get("node", {}).get("hostname", machine[0])
        told |= {host}
        number = _NUMBERED.match(path.name)
        name = path.parent.name if beside[path.name] > 1 else number[0] if number else one.file
        outputs.setdefault(host or name, []).append(one)
    nodes: list[Node] = []
    for name, several in outputs.items():
        node = Node(name if name in told else "", Printed(several), name)
        clash = next(iter(node.printed.clashes), "")
        if clash or not all(_are_two(node, one) for one in nodes if one.name):
            nodes += [Node(node.host, Printed([one]), clash=clash) for one in several]
        else:
            nodes.append(node)
    return [one for one in nodes if one.printed.at]


def _by_host(file: str, lines: Sequence[str]) -> Iterator[tuple[str, Output]]:
    """The lines of each host, where pdsh or clush put a name before most; else all, of ""."""
    hosts: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        if label := _LABEL.match(line):
            hosts.setdefault(label[1], []).append(at)
    if sum(map(len, hosts.values())) * 3 <= len(lines) * 2:
        hosts = {"": [*range(len(lines))]}
    for host, places in hosts.items():
        yield host, Output(file, places, [lines[at].removeprefix(f"{host}: ") for at in places])


def _are_two(node: Node, other: Node) -> bool:
    """Whether they are two machines: at the same places they have other GPUs and ports, or without
    such places their names are known."""
    own, others = _own(node.printed.facts), _own(other.printed.facts)
    shared = [own[place] == others[place] for place in own.keys() & others.keys()]
    return sum(shared) * 2 < len(shared) if shared else bool(node.host and other.host)


def _own(facts: Mapping[str, Any]) -> dict[Hashable, str]:
    """What no other machine has, by its place."""
    gpus = facts["gpus"].get("devices", ())
    cards = facts.get("network", {}).get("rdma", ())
    ports = [(card.get("name"), port) for card in cards for port in card.get("ports", ())]
    return {
        **{one.get("pci_address", one["index"]): one["uuid"] for one in gpus if "uuid" in one},
        **{
            (name, one.get("port")): one["gids"][0].get("gid")
            for name, one in ports
            if "gids" in one
        },
    }
