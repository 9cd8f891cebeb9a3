"""The hardware of a node that a change must not reduce: GPUs, their memory and links, RDMA ports,
host memory, NUMA nodes. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unhang.core.schemas.policy import Policy
from unhang.core.text import listed

# tolerance for memory, which different versions of the kernel and the driver count differently
LESS_BY = 0.01
SHOWN = 8


def read_hardware(sections: Mapping[str, Any]) -> dict[str, Any]:
    """{gpus: {uuid: MiB}, nvlinks: {uuid: active links}, fabric, rdma_ports: [name], memory_bytes,
    numa_nodes}; None for values that were not read."""
    node, links, network = (
        sections.get(name) or {} for name in ("node", "interconnect", "network")
    )
    devices = (sections.get("gpus") or {}).get("devices")
    by_gpu, rdma = links.get("by_gpu"), network.get("rdma")
    return {
        "gpus": (
            None
            if devices is None
            else {
                str(one["uuid"]): one.get("memory_total_mib")
                for one in devices
                if one.get("uuid") and not one.get("error")
            }
        ),
        "nvlinks": (
            None
            if by_gpu is None
            else {str(one.get("uuid")): one.get("nvlinks_active") or 0 for one in by_gpu}
        ),
        "fabric": links.get("fabric_state"),
        "rdma_ports": (
            None
            if rdma is None
            else [
                f"{one['name']}:{port['port']}"
                for one in rdma
                for port in one.get("ports") or ()
                if _is_active(port)
            ]
        ),
        "memory_bytes": node.get("memory_total_bytes"),
        "numa_nodes": node.get("numa_nodes"),
    }


def losses(before: Mapping[str, Any], now: Mapping[str, Any], policy: Policy) -> list[str]:
    """Hardware that the node has lost, one line each; [] for none. before, now: results of
    read_hardware. A change that the policy requests is no loss. A value that was read before must
    be read now."""
    found = []
    for key, (title, compare) in COMPARED.items():
        if before.get(key) is None:
            continue
        if now.get(key) is None:
            found.append(f"no longer known: {title}")
            continue
        found += compare(before[key], now[key], policy)
    return found


def _gpus(before: Mapping[str, Any], now: Mapping[str, Any], policy: Policy) -> list[str]:
    lines = []
    if len(now) < len(before) and (policy.get("gpu") or {}).get("count") != len(now):
        lines.append(
            f"of the {len(before)} GPUs of before, {len(now)} are there; gone are"
            f" {listed(sorted(set(before) - set(now)), SHOWN)}"
        )
    for uuid in sorted(set(before) & set(now)):
        if _is_less(before[uuid], now[uuid]):
            lines.append(
                f"GPU {uuid} has {now[uuid] or 0:g} MiB of memory, not {before[uuid]:g} as before"
            )
    return lines


def _nvlinks(before: Mapping[str, int], now: Mapping[str, int], policy: Policy) -> list[str]:
    enough = (policy.get("nvlink") or {}).get("links_per_gpu")
    lost = [
        uuid
        for uuid in sorted(set(before) & set(now))
        if now[uuid] < before[uuid] and (enough is None or now[uuid] < enough)
    ]
    return [
        f"GPU {uuid} has {now[uuid]} active NVLinks, not {before[uuid]} as before" for uuid in lost
    ]


def _fabric(before: str, now: str, _policy: Policy) -> list[str]:
    return (
        [f"the NVSwitch fabric is {now.replace('_', ' ')}, not completed as before"]
        if before == "completed" and now != "completed"
        else []
    )


def _ports(before: Sequence[str], now: Sequence[str], policy: Policy) -> list[str]:
    enough = (policy.get("network") or {}).get("rdma_ports")
    if len(now) >= len(before) or (enough is not None and len(now) >= enough):
        return []
    return [
        f"of the {len(before)} active RDMA ports of before, {len(now)} are active; not active are"
        f" {listed(sorted(set(before) - set(now)), SHOWN)}"
    ]


def _memory(before: int, now: int, _policy: Policy) -> list[str]:
    return (
        [f"the node has {now} bytes of memory, not {before} as before"]
        if _is_less(before, now)
        else []
    )


def _numa(before: int, now: int, _policy: Policy) -> list[str]:
    return [f"the node has {now} NUMA nodes, not {before} as before"] if now < before else []


COMPARED: dict[str, tuple[str, Callable[[Any, Any, Policy], list[str]]]] = {
    "gpus": ("the node's GPUs", _gpus),
    "nvlinks": ("active NVLinks", _nvlinks),
    "fabric": ("the state of the NVSwitch fabric", _fabric),
    "rdma_ports": ("active RDMA ports", _ports),
    "memory_bytes": ("the node's memory", _memory),
    "numa_nodes": ("the node's NUMA nodes", _numa),
}


def _is_active(port: Mapping[str, Any]) -> bool:
    return port.get("state") == "active"


def _is_less(before: float | None, now: float | None) -> bool:
    return before is not None and (now or 0) < before * (1 - LESS_BY)
