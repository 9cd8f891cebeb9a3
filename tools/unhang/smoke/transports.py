"""The transport between each pair of ranks, from NCCL's log; NVML says which GPUs NVLink connects.
Values in, values out.

NCCL writes P2P for NVLink and for PCIe alike, SHM for memory of the host, NET with the number of a
device. What a pair is reported to use here has a kind (nvlink, pcie, p2p where it is unknown
which of the two, shm, net) and a label for people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.core.smoke_result import Transport
from unhang.smoke.streams import Event, Story
from unhang_node.base.parse.values import as_list, as_map, number_of

KINDS = ("nvlink", "pcie", "p2p", "shm", "net")
_NET = re.compile(r"NET/(.+?)/(\d+)(?:\(\d+\))?(?:/|$)")
_PAIR = re.compile(r"([0-9]{1,7})>([0-9]{1,7})")
MOST_DEVICES = 64


def transport_rows(reported: Mapping[int, Story], events: Sequence[Event]) -> list[Transport]:
    """One for each pair of ranks in NCCL's log.

    nvlink: whether NVLink joins the two GPUs, null where it is unknown. kind: the slowest of
    those in use. nics: names of the devices, sorted.
    """
    logs = [event for event in events if event["e"] == "transports"]
    planned = {str(kind) for event in logs for kind in as_list(event.get("graph"))}
    is_joined = _nvlinks(reported, events)
    rows = []
    for (sender, receiver), pair in sorted(_pairs(logs).items()):
        joined = is_joined(sender, receiver)
        nvlink = joined if joined is not None else _by_plan(planned)
        kinds = {kind for way in pair.via if (kind := kind_of(way, nvlink))}
        names = {name for way, known in pair.received if (name := nic_of(way, known))}
        sent = {name for way, known in pair.sent if (name := nic_of(way, known))}
        label = ", ".join(
            dict.fromkeys(label_of(way, nvlink, known) for way, known in pair.sent or pair.received)
        )
        there = sorted(names - sent) if pair.sent else ()
        label += f"; received by {', '.join(map(_short, there))}" if there else ""
        rows.append(
            Transport(
                sender, receiver, pair.via, pair.channels, joined,
                max(kinds, key=KINDS.index, default=None), label, sorted(names | sent),
            )
        )  # fmt: skip
    return rows


def kind_of(way: str, nvlink: bool | None) -> str | None:
    """One of KINDS, or None for an unknown transport of NCCL."""
    if way.startswith("P2P"):
        return {True: "nvlink", False: "pcie", None: "p2p"}[nvlink]
    return "shm" if way.startswith("SHM") else "net" if way.startswith(("NET", "COLLNET")) else None


def nic_of(way: str, devices: Mapping[str, Mapping[str, str]]) -> str | None:
    """mlx5_2:1/RoCE for NET/IB/2/GDRDMA, where the log lists the devices."""
    found = _NET.match(way)
    return devices.get(found[1], {}).get(found[2]) if found else None


def label_of(way: str, nvlink: bool | None, devices: Mapping[str, Mapping[str, str]]) -> str:
    """For people: NVLink (P2P/CUMEM), P2P over PCIe (P2P/IPC), NET IB by mlx5_2:1/RoCE with
    GPUDirect RDMA."""
    kind = kind_of(way, nvlink)
    if kind in ("nvlink", "pcie", "p2p"):
        return {"nvlink": "NVLink", "pcie": "P2P over PCIe", "p2p": "P2P, NVLink or PCIe"}[
            kind
        ] + f" ({way})"
    if kind == "shm":
        return f"host memory ({way})"
    found = _NET.match(way)
    if not found:
        return way
    name = nic_of(way, devices) or f"device {found[2]}"
    return f"NET {found[1]} by {_short(name)}" + (" with GPUDirect RDMA" if "GDRDMA" in way else "")


def _short(name: str) -> str:
    """Without the port that NCCL writes behind an address."""
    return name.split("<")[0]


def _by_plan(planned: set[str]) -> bool | None:
    """NCCL's graph for all pairs of a node: NVL for NVLink, else the farthest kind of PCIe path."""
    return (
        None
        if not planned
        else True
        if planned <= {"NVL", "LOC"}
        else False
        if "NVL" not in planned
        else None
    )


@dataclass
class _Pair:
    """What NCCL's logs have of a pair of ranks. sent, received: (transport, devices of the rank
    whose log has it), because each end of a network numbers its own devices."""

    via: list[str] = field(default_factory=list)
    channels: int = 0
    sent: list[tuple[str, Any]] = field(default_factory=list)
    received: list[tuple[str, Any]] = field(default_factory=list)


def _pairs(logs: Iterable[Event]) -> dict[tuple[int, int], _Pair]:
    found: dict[tuple[int, int], _Pair] = {}
    for event in logs:
        known = _devices(event.get("devices"))
        for name, row in as_map(event.get("pairs")).items():
            ends = _PAIR.fullmatch(str(name))
            if ends and isinstance(row, dict):
                sender, receiver = map(int, ends.groups())
                one = found.setdefault((sender, receiver), _Pair())
                ways = [str(way)[:120] for way in as_list(row.get("via"))[:16]]
                one.via = list(dict.fromkeys([*one.via, *ways]))
                there = one.sent if event.get("rank") == sender else one.received
                there += [(way, known) for way in ways]
                one.channels = max(one.channels, int(number_of(row.get("channels"))))
    return found


def _nvlinks(
    reported: Mapping[int, Story], events: Iterable[Event]
) -> Callable[[int, int], bool | None]:
    """Whether NVLink joins the GPUs of two ranks, from the pairs of UUIDs that NVML joins; None
    where it is unknown."""
    asked = [
        event["pairs"]
        for event in events
        if event["e"] == "nvlink" and isinstance(event.get("pairs"), list)
    ]
    joined = {
        frozenset(map(str, pair)) for pairs in asked for pair in pairs if isinstance(pair, list)
    }
    uuids = {
        rank: as_map(story.result("binding").get("device")).get("uuid")
        for rank, story in reported.items()
    }

    def is_joined(*ranks: int) -> bool | None:
        ends = [uuids.get(rank) for rank in ranks]
        return frozenset(map(str, ends)) in joined if asked and all(ends) else None

    return is_joined


def _devices(value: Any) -> dict[str, dict[str, str]]:
    return {
        str(net): {str(at): str(name)[:80] for at, name in list(rows.items())[:MOST_DEVICES]}
        for net, rows in as_map(value).items()
        if isinstance(rows, dict)
    }
