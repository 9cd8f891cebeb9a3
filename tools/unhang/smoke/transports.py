"""The transport between each pair of ranks, from NCCL's log; NVML says which GPUs NVLink connects.
Values in, values out.

NCCL writes P2P for NVLink and for PCIe alike, SHM for memory of the host, NET with the number of a
device. What a pair is reported to use here has a kind (nvlink, pcie, p2p where nobody could tell
which of the two, shm, net) and a label for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unhang.core.verdict.streams import Event, Story
from unhang_node.base.parse.values import as_list, number_of

KINDS = ("nvlink", "pcie", "p2p", "shm", "net")
_NET = re.compile(r"NET/(.+?)/(\d+)(?:\(\d+\))?(?:/|$)")
MOST_DEVICES = 64


def transport_rows(reported: Mapping[int, Story], events: Sequence[Event]) -> list[dict[str, Any]]:
    """{from, to, via, channels, nvlink, kind, label, nics} for each pair of ranks in NCCL's log.

    nvlink: whether NVLink joins the two GPUs, null where nobody could tell. kind: the slowest of
    those in use. nics: names of the devices, sorted.
    """
    logs = [event for event in events if event["e"] == "transports"]
    rows = with_nvlink(_pairs(logs), reported, events)
    planned = {str(kind) for event in logs for kind in as_list(event.get("graph"))}
    for row in rows:
        nvlink = row["nvlink"] if row["nvlink"] is not None else _by_plan(planned)
        kinds = {kind for way in row["via"] if (kind := kind_of(way, nvlink))}
        row["kind"] = max(kinds, key=KINDS.index) if kinds else None
        sent, received = row.pop("sent"), row.pop("received")
        row["nics"] = sorted(
            {name for way, known in [*sent, *received] if (name := nic_of(way, known))}
        )
        row["label"] = ", ".join(
            dict.fromkeys(label_of(way, nvlink, known) for way, known in sent or received)
        )
        there = sorted(
            {name for way, known in received if (name := nic_of(way, known))}
            - {nic_of(way, known) for way, known in sent}
        )
        row["label"] += (
            f"; received by {', '.join(_short(name) for name in there)}" if sent and there else ""
        )
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


def _pairs(logs: Iterable[Event]) -> list[dict[str, Any]]:
    """Rows with `sent` and `received`: (transport, devices of the rank whose log has it), because
    each end of a network numbers its own devices."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for event in logs:
        pairs, known = event.get("pairs"), _devices(event.get("devices"))
        for name, row in pairs.items() if isinstance(pairs, dict) else ():
            ends = str(name).split(">")
            if (
                len(ends) == 2
                and all(end.isdecimal() and len(end) < 8 for end in ends)
                and isinstance(row, dict)
            ):
                start = {
                    "from": int(ends[0]),
                    "to": int(ends[1]),
                    "via": [],
                    "channels": 0,
                    "sent": [],
                    "received": [],
                }
                one = found.setdefault((int(ends[0]), int(ends[1])), start)
                ways = [str(way)[:120] for way in as_list(row.get("via"))[:16]]
                one["via"] = list(dict.fromkeys([*one["via"], *ways]))
                one["sent" if event.get("rank") == one["from"] else "received"] += [
                    (way, known) for way in ways
                ]
                one["channels"] = max(one["channels"], int(number_of(row.get("channels"))))
    return [found[key] for key in sorted(found)]


def with_nvlink(
    rows: Sequence[dict[str, Any]], reported: Mapping[int, Story], events: Iterable[Event]
) -> list[dict[str, Any]]:
    """The rows with `nvlink`, from the pairs of UUIDs that NVML joins."""
    asked = [
        event for event in events if event["e"] == "nvlink" and isinstance(event.get("pairs"), list)
    ]
    joined = {
        frozenset(map(str, pair))
        for event in asked
        for pair in event["pairs"]
        if isinstance(pair, list)
    }
    for row in rows:
        ends = [_uuid(reported.get(row[end])) for end in ("from", "to")]
        row["nvlink"] = frozenset(map(str, ends)) in joined if asked and all(ends) else None
    return list(rows)


def _uuid(story: Story | None) -> str | None:
    result = (story.phases.get("binding") or {}).get("result") if story else None
    device = result.get("device") if isinstance(result, dict) else None
    return str(device.get("uuid")) if isinstance(device, dict) else None


def _devices(value: Any) -> dict[str, dict[str, str]]:
    nets = value.items() if isinstance(value, dict) else ()
    return {
        str(net): {str(at): str(name)[:80] for at, name in list(rows.items())[:MOST_DEVICES]}
        for net, rows in nets
        if isinstance(rows, dict)
    }
