"""Which files of a machine's tools are of one node: their facts are put together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from unhang.commands.printed_facts import Output, Printed
from unhang.jobs.diagnose.logs.rank_hosts import MACHINE, hosts_of_lines

_NUMBERED = re.compile(r"[A-Za-z][A-Za-z0-9-]*\d")
# what no other machine has: the UUID of a GPU, a card's address that is no broadcast, a GUID
_OWN = re.compile(
    r"\bGPU-[0-9a-f-]{36}|\b(?!00:00:00|ff:ff:ff)(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"
    r"|\b0x(?!0{16})[0-9a-f]{16}\b|\b(?!fe80:|0000:)(?:[0-9a-f]{4}:){3}[0-9a-f]{4}\b"
)


class Node(NamedTuple):
    """What files show of one machine. host: its name, if they have it; name: in comparisons, "" if
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
    known: list[tuple[bool, set[str]]] = []
    for name, several in outputs.items():
        node = Node(name if name in told else "", Printed(several), name)
        own = {one for output in several for line in output.lines for one in _OWN.findall(line)}
        clash = next(iter(node.printed.clashes), "")
        if clash or not all(_are_two(bool(node.host), own, *one) for one in known):
            nodes += [Node(node.host, Printed([one]), clash=clash) for one in several]
        else:
            nodes.append(node)
            known.append((bool(node.host), own))
    return [one for one in nodes if one.printed.at]


def _by_host(file: str, lines: Sequence[str]) -> Iterator[tuple[str, Output]]:
    """The lines of each host, and all others of ""."""
    hosts = defaultdict[str, list[tuple[int, str]]](list)
    for at, (host, line) in enumerate(hosts_of_lines(lines, file)):
        hosts[host].append((at, line))
    for host, rows in hosts.items():
        yield host, Output(file, *zip(*rows, strict=True))


def _are_two(is_told: bool, own: set[str], others_told: bool, others: set[str]) -> bool:
    """Whether outputs are of two machines: they have other serial numbers and addresses, or show
    none, and both name their host."""
    if own and others:
        return len(own & others) * 2 < min(len(own), len(others))
    return is_told and others_told
