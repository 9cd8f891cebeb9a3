"""Error counters of a node that rise faster than those of healthy hardware, by the table
`counter_rates`: since the last run of the same boot, else since boot. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from unhang.audit.rules.values import Fact
from unhang.core.schemas.shapes import NUMBER, TEXT, Shape

TABLE = "counter_rates"
LEAST_LOOK_S = 600.0  # between two runs; a shorter time tells little
LEAST_UPTIME_S = 3600.0  # what a boot and its first links count is no rate
RISING = Shape(
    "object",
    {
        "counter": TEXT, "name": TEXT, "pci_address": TEXT, "rise": NUMBER, "hours": NUMBER,
        "per_hour": NUMBER, "normal": NUMBER, "peers": NUMBER,
    },
)  # fmt: skip
"""rise: in so many hours; normal: what healthy hardware counts in one hour, at most; peers: what
its neighbours count in an hour, the median."""
READS = frozenset(
    tuple(path.split("."))
    for path in (
        "node.uptime_s", "node.earlier.uptime_s", "node.earlier.counters",
        "network.rdma.*.name", "network.rdma.*.pci_address", "network.rdma.*.driver",
        "network.rdma.*.ports.*.port", "network.rdma.*.ports.*.state",
        "network.rdma.*.ports.*.counters.**",
        "gpus.devices.*.index", "gpus.devices.*.pci_address", "gpus.devices.*.pcie.replays",
    )
)  # fmt: skip


class Counter(NamedTuple):
    """One counter of one device. name: with its device; kind: as the table names it; sort: devices
    of one sort are peers."""

    kind: str
    device: str
    sort: str
    pci_address: str | None
    path: str
    value: int

    @property
    def name(self) -> str:
        return f"{self.device} {self.kind}"


def counters_of(sections: Any, lacking: list[str] | None = None) -> Iterator[Counter]:
    """The error counters that were read. lacking: takes the paths of facts without a value."""
    lacking = [] if lacking is None else lacking
    yield from _of_ports(getattr(sections, "network", None), lacking)
    yield from _of_gpus(getattr(sections, "gpus", None), lacking)


def _of_ports(network: Any, lacking: list[str]) -> Iterator[Counter]:
    if network is not None and network.rdma is None:
        lacking.append("network.rdma")
    for place, card in enumerate((network.rdma if network is not None else None) or ()):
        for number, port in enumerate(card.ports or ()):
            path = f"network.rdma[{place}].ports[{number}]"
            lacking += [
                f"{path}.{name}" for name in ("state", "counters") if getattr(port, name) is None
            ]
            device = card.name if port.port == 1 else f"{card.name}/{port.port}"
            for kind, value in (port.counters or {}).items() if port.state == "active" else ():
                at = f"{path}.counters.{kind}"
                if value is None:
                    lacking.append(at)
                else:
                    yield Counter(kind, device, str(card.driver), card.pci_address, at, value)


def _of_gpus(gpus: Any, lacking: list[str]) -> Iterator[Counter]:
    if gpus is not None and gpus.devices is None:
        lacking.append("gpus.devices")
    for place, gpu in enumerate((gpus.devices if gpus is not None else None) or ()):
        at = f"gpus.devices[{place}].pcie.replays"
        replays = gpu.pcie.replays if gpu.pcie is not None else None
        if replays is None:
            lacking.append(at)
        else:
            name = f"GPU {gpu.index}"
            yield Counter("PCIe replays", name, "GPU", gpu.pci_address, at, replays)


def rising(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """The counters that rise faster than normal, as Fact of the shape RISING; an Unknown where the
    time is not known."""
    table = tables.get(TABLE, {})
    lacking: list[str] = []
    counters = [
        one
        for one in counters_of(sections, lacking)
        if one.kind in table
        and "steady_per_hour" in table[one.kind]
        and one.value >= table[one.kind]["least"]
    ]
    missing = [one for one in map(why_null, lacking) if one.kind == "unread"]
    if not counters:
        return missing
    uptime_s = sections.node.uptime_s if sections.node is not None else None
    if uptime_s is None:
        return [*missing, why_null("node.uptime_s")]
    before, seconds = _earlier(sections.node, uptime_s)
    if seconds < (LEAST_LOOK_S if before else LEAST_UPTIME_S):
        return missing
    hours = seconds / 3600
    rises = {one: one.value - before.get(one.name, 0) for one in counters}
    found: list[Any] = missing
    for one, rise in rises.items():
        row, peers = table[one.kind], _peers(one, sections, before)
        normal = row["steady_per_hour"]
        times = row["beside_peers"]
        stands_out = not times or (len(peers) > 1 and rise >= times * _median(peers))
        if rise >= row["least"] and rise > normal * hours and stands_out:
            facts = {
                "counter": one.kind, "name": one.device, "pci_address": one.pci_address,
                "rise": rise, "hours": round(hours, 1), "per_hour": round(rise / hours),
                "normal": normal, "peers": round(_median(peers) / hours) if peers else 0,
            }  # fmt: skip
            found.append(Fact(facts, RISING, one.path))
    return found


def _earlier(node: Any, uptime_s: float) -> tuple[Mapping[str, int], float]:
    """The counters of the last run since this boot and the seconds since then; none of them and
    the uptime without such a run."""
    earlier = node.earlier
    if earlier is None or earlier.counters is None or earlier.uptime_s is None:
        return {}, uptime_s
    since_s = uptime_s - earlier.uptime_s
    return (earlier.counters, since_s) if since_s >= LEAST_LOOK_S else ({}, uptime_s)


def _peers(one: Counter, sections: Any, before: Mapping[str, int]) -> list[int]:
    """What the same counter of the other devices of its sort rose by."""
    return [
        max(0, other.value - before.get(other.name, 0))
        for other in counters_of(sections)
        if other.kind == one.kind and other.sort == one.sort and other.device != one.device
    ]


def _median(values: list[int]) -> float:
    low, high = ((len(values) - 1) // 2, len(values) // 2)
    return (sorted(values)[low] + sorted(values)[high]) / 2
