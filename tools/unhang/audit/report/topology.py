"""How the GPUs of one node are connected, from its facts: existing GPUs, links that are up, pairs
that cannot reach each other.

Facts in, value out. Identities (UUIDs, PCI addresses) stay out of a topology, so that nodes with
the same connections compare equal and are drawn once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unhang.core.secrets_in_text import without_secrets
from unhang.core.strict_json import value_at
from unhang.core.text import visible
from unhang_node.base.parse.values import as_map, as_maps, whole_or_none

MOST_GPUS = 32  # more GPUs than any machine has; further ones are not drawn
# larger than any count, index or width in a topology; a larger value is treated as not read


@dataclass(frozen=True)
class Gpu:
    index: int
    numa_node: int | None
    pcie: str  # `gen5 x16`, `x8 of x16`; empty when not read
    pcie_narrow: bool
    links: int | None  # number of NVLinks; None if not read, or for a card without a bridge
    links_active: int | None
    remote: str  # gpu switch cpu none unknown mixed
    lost: bool  # NVML returned no handle

    @property
    def links_down(self) -> int:
        return (
            self.links - self.links_active
            if self.links is not None and self.links_active is not None
            else 0
        )


@dataclass(frozen=True)
class Pair:
    a: int
    b: int
    topology: str  # internal single multiple hostbridge node system, or empty
    nvlinks: int | None
    status: str  # ok, or why one cannot read the other; empty when not read

    @property
    def broken(self) -> bool:
        return self.status not in ("", "ok")


@dataclass(frozen=True)
class Port:
    name: str
    numa_node: int | None
    state: str
    rate_gbps: float | None
    layer: str

    @property
    def down(self) -> bool:
        return self.state not in ("", "active")


@dataclass(frozen=True)
class Topology:
    model: str
    gpus: tuple[Gpu, ...]
    pairs: tuple[Pair, ...]
    ports: tuple[Port, ...]
    switches: int | None  # NVSwitches, None when not read
    fabric: str


MOST_TROUBLES = 12


def troubles(topology: Topology) -> list[str]:
    """The marks of the drawing as text: its text alternative."""
    lines = []
    for gpu in topology.gpus:
        if gpu.lost:
            lines.append(f"GPU {gpu.index} does not answer")
        if gpu.links_down:
            lines.append(f"GPU {gpu.index}: {gpu.links_active} of {gpu.links} NVLinks active")
        if gpu.pcie_narrow:
            lines.append(f"GPU {gpu.index}: PCIe {gpu.pcie}")
    lines += [
        f"GPU {pair.a} cannot reach GPU {pair.b}: {visible(pair.status, 80)}"
        for pair in topology.pairs
        if pair.broken
    ]
    lines += [
        f"port {visible(port.name, 40)} is {visible(port.state, 40)}"
        for port in topology.ports
        if port.down
    ]
    return (
        lines
        if len(lines) <= MOST_TROUBLES
        else [*lines[:MOST_TROUBLES], f"and {len(lines) - MOST_TROUBLES} more"]
    )


def topology_of(sections: Mapping[str, Any]) -> Topology | None:
    """The topology that a node's sections describe; None when it has fewer than two GPUs. Fields of
    a wrong type count as not read."""
    devices = [
        row
        for row in rows_at(sections, "gpus", "devices")
        if whole_or_none(row.get("index")) is not None
    ][:MOST_GPUS]
    if len(devices) < 2:
        return None
    links = {
        row["gpu"]: row
        for row in rows_at(sections, "interconnect", "by_gpu")
        if whole_or_none(row.get("gpu")) is not None
    }
    known = {row["index"] for row in devices}
    switches = whole_or_none(as_map(sections.get("fabric_manager")).get("nvswitch_count"))
    gpus = tuple(
        _gpu(row, links.get(row["index"], {}), bool(switches))
        for row in sorted(devices, key=lambda row: row["index"])
    )
    pairs = tuple(sorted(_pairs(sections, known), key=lambda pair: (pair.a, pair.b)))
    return Topology(
        model=text_of(sections["gpus"].get("model")),
        gpus=gpus,
        pairs=pairs,
        ports=tuple(_ports(sections))[:MOST_GPUS],
        switches=switches,
        fabric=text_of(as_map(sections.get("interconnect")).get("fabric_state")),
    )


def _gpu(row: Mapping[str, Any], links: Mapping[str, Any], switched: bool) -> Gpu:
    pcie = row.get("pcie")
    pcie = pcie if isinstance(pcie, dict) else {}
    generation, width, widest = (
        whole_or_none(pcie.get(key)) for key in ("generation_max", "width_now", "width_max")
    )
    narrow = width is not None and widest is not None and width < widest
    shown = f"gen{generation} " if generation is not None else ""
    remote, active = text_of(links.get("remote")), whole_or_none(links.get("nvlinks_active"))
    bridgeless = active == 0 and remote in ("", "none", "unknown") and not switched
    return Gpu(
        index=row["index"],
        numa_node=whole_or_none(row.get("numa_node")),
        pcie="" if width is None else f"x{width} of x{widest}" if narrow else f"{shown}x{width}",
        pcie_narrow=narrow,
        links=None if bridgeless else whole_or_none(links.get("nvlinks")),
        links_active=None if bridgeless else active,
        remote=remote,
        lost=bool(row.get("error")),
    )


def _pairs(sections: Mapping[str, Any], known: set[int]) -> Iterator[Pair]:
    seen: set[tuple[int, int]] = set()
    for row in rows_at(sections, "interconnect", "pairs"):
        a, b = whole_or_none(row.get("a")), whole_or_none(row.get("b"))
        if (
            a is None
            or b is None
            or a == b
            or not {a, b} <= known
            or (min(a, b), max(a, b)) in seen
        ):
            continue
        seen.add((min(a, b), max(a, b)))
        yield Pair(
            min(a, b),
            max(a, b),
            text_of(row.get("topology")),
            whole_or_none(row.get("nvlinks")),
            text_of(row.get("read")),
        )


def _ports(sections: Mapping[str, Any]) -> Iterator[Port]:
    for device in rows_at(sections, "network", "rdma"):
        listed = device.get("ports")
        ports = listed if isinstance(listed, list) else []
        for port in ports:
            if isinstance(port, dict):
                rate = port.get("rate_gbps")
                name = text_of(device.get("name")) or "?"
                yield Port(
                    name=name if len(ports) == 1 else f"{name}:{port.get('port')}",
                    numa_node=whole_or_none(device.get("numa_node")),
                    state=text_of(port.get("state")),
                    rate_gbps=float(rate)
                    if isinstance(rate, (int, float)) and not isinstance(rate, bool)
                    else None,
                    layer=text_of(port.get("link_layer")),
                )


def rows_at(sections: Mapping[str, Any], section: str, name: str) -> list[dict[str, Any]]:
    """The objects of a list of a section, [] where it has none."""
    return as_maps(value_at(sections, (section, name)))


def text_of(value: object) -> str:
    """A text of a node's without secrets, "" for anything else."""
    return without_secrets(value) if isinstance(value, str) else ""
