"""Counters of network interfaces and RDMA ports, and how much they rose."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

from .roots import rooted

# the part before a counter's own name
COUNTED_OF = re.compile(r"(?:GPU \d+ link \d+|GPU \d+|\S+ port \d+|\S+) (.+)")
NET = (
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "rx_crc_errors",
    "tx_carrier_errors",
)


def net_counters() -> dict[str, int]:
    """{name: count}: "eth0 rx_bytes", "mlx5_0 port 1 symbol_error"; all ports of all devices."""
    counts: dict[str, int] = {}
    net, rdma = rooted("/sys/class/net"), rooted("/sys/class/infiniband")
    for name in _names(net):
        _read_all(counts, name, os.path.join(net, name, "statistics"), NET)
    for name in _names(rdma):
        for port in _names(os.path.join(rdma, name, "ports")):
            for kind in ("counters", "hw_counters"):
                folder = os.path.join(rdma, name, "ports", port, kind)
                _read_all(counts, "%s port %s" % (name, port), folder, _names(folder))
    return counts


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read_all(counts: dict[str, int], name: str, folder: str, counters: Iterable[str]) -> None:
    for counter in counters:
        with contextlib.suppress(OSError, ValueError), open(
            os.path.join(folder, counter), encoding="ascii"
        ) as source:
            counts["%s %s" % (name, counter)] = int(source.read())


def peers_of(moved: Iterable[str], read: Iterable[str]) -> dict[str, int]:
    """{kind of a counter: how many of it were read} for each kind of which at least one rose:
    {"replay errors": 144, "symbol_error": 8}."""
    wanted = {found.group(1) for found in map(COUNTED_OF.match, moved) if found}
    kinds = [found.group(1) for found in map(COUNTED_OF.match, read) if found]
    return {kind: kinds.count(kind) for kind in sorted(wanted)}


def changed(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The counters that rose, and by how much."""
    return {
        name: after[name] - before.get(name, 0)
        for name in sorted(after)
        if after[name] != before.get(name, 0)
    }
