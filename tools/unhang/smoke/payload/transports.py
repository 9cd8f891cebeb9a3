"""The transport between each pair of ranks, from NCCL's own log."""

from __future__ import annotations

import re
from typing import Any

# The lines that NCCL prints in p2p.cc, shm.cc and net.cc; those for shared memory have no
# connection number, those for networks the proxy's rank in brackets.
# https://github.com/NVIDIA/nccl/tree/master/src/transport
TRANSPORT = re.compile(
    r"Channel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(send|receive)\] )?via (.+?)(?: comm"
    r" 0x.*)?$"
)
NET_DEVICES = re.compile(r"NCCL INFO NET/(.+?) : Using (\[\d.*)")
NET_DEVICE = re.compile(r"\[(\d+)\]=?(\{[^}]*\}|[^\s\[;]+)")
GRAPH = re.compile(r"NCCL INFO Pattern \d+, .*, type (\w+)/(\w+)")
NVLS_CHANNELS = re.compile(r" (\d+) nvls channels")


def transports_of(log: str) -> dict[str, Any]:
    """The transports in one rank's log, as the fields of an event.

    pairs: {"0>1": {"via": ["P2P/CUMEM"], "channels": 24}}; nics: lines that list the network's
    devices; devices: {"IB": {"0": "mlx5_0:1/IB"}};
    graph: kinds of path inside a node that NCCL planned with (NVL, PIX, PXB, PHB, SYS); nvls:
    NVLink SHARP in use.
    """
    found: dict[str, Any] = {"pairs": {}, "nics": [], "devices": {}, "nvls": None}
    graphs: list[str] = []
    for line in log.splitlines():
        if " via " in line:
            _add_pair(found["pairs"], TRANSPORT.search(line))
        elif " : Using [" in line:
            _add_devices(found, NET_DEVICES.search(line))
        elif "Pattern" in line:
            graph = GRAPH.search(line)
            if graph and graph.group(1) not in graphs:
                graphs.append(graph.group(1))
        elif "nvls channels" in line:
            channels = NVLS_CHANNELS.search(line)
            found["nvls"] = bool(found["nvls"]) or (
                channels is not None and int(channels.group(1)) > 0
            )
    if found["nvls"] is None:  # for releases that do not log a count
        found["nvls"] = "NVLS multicast support is available" in log
    return dict(found, graph=graphs)


def _add_pair(pairs: dict[str, dict[str, Any]], found: re.Match[str] | None) -> None:
    if found:
        row = pairs.setdefault(
            "%s>%s" % (found.group(1), found.group(2)), {"via": [], "channels": 0}
        )
        row["channels"] += 1
        way = found.group(4).strip()[:120]
        if way not in row["via"] and len(row["via"]) < 16:
            row["via"].append(way)


def _add_devices(found: dict[str, Any], used: re.Match[str] | None) -> None:
    if used:
        text = used.group(2)[:200]
        if text not in found["nics"]:
            found["nics"].append(text)
        found["devices"].setdefault(used.group(1), {}).update(NET_DEVICE.findall(used.group(2)))
