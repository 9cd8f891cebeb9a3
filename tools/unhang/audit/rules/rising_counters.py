"""Error counters of a node that rise faster than those of healthy hardware, by the table
`counter_rates`: since the last run of the same boot, else since boot. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from unhang.audit.rules.distances import distances, median
from unhang.audit.rules.values import Fact
from unhang.core.schemas.shapes import NUMBER, Shape

TABLE = "counter_rates"
LEAST_LOOK_S = 600.0  # between two runs; a shorter time tells little
LEAST_UPTIME_S = 3600.0  # what a boot and its first links count is no rate
FEWEST = 1000  # an hour; fewer accuse nobody without a known normal rate
MORE_WORK = 10  # times the packets of its like: a port with another purpose
TRAFFIC = "_packets"  # the end of the names of counters of what jobs send
PACKETS = "port_rcv_packets"
# A port that receives fewer in an hour, 4 GB of full packets, trains nothing; our own number.
FEWEST_PACKETS = 1_000_000
TOLD_APART = 100  # parts of a normal rate below this many are shown to nobody
NAME = Shape("text", identity=True)
RISING = Shape(
    "object",
    {
        "counter": NAME, "name": NAME, "pci_address": NAME, "rise": NUMBER,
        "hours": NUMBER, "per_hour": NUMBER, "normal": NUMBER, "peers": NUMBER,
        "severity": Shape("text", values=("error", "warning", "info")),
    },
)  # fmt: skip
"""rise: in so many hours; normal: what healthy hardware counts in one hour, at most; peers: what
its neighbours count in an hour, the median; severity: of so many an hour."""
READS = frozenset(
    tuple(path.split("."))
    for path in (
        "node.uptime_s", "node.earlier.uptime_s", "node.earlier.counters",
        "network.rdma.*.name", "network.rdma.*.pci_address", "network.rdma.*.driver",
        "network.rdma.*.ports.*.port", "network.rdma.*.ports.*.state",
        "network.rdma.*.ports.*.counters.**",
        "interconnect.links.*.gpu", "interconnect.links.*.link", "interconnect.links.*.active",
        "interconnect.links.*.errors.replay", "interconnect.links.*.errors.crc",
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
    yield from _of_links(getattr(sections, "interconnect", None), lacking)


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


def _of_links(interconnect: Any, lacking: list[str]) -> Iterator[Counter]:
    for place, link in enumerate((interconnect.links if interconnect else None) or ()):
        for kind, name in (("replay", "replay errors"), ("crc", "CRC errors")):
            at = f"interconnect.links[{place}].errors.{kind}"
            count = getattr(link.errors, kind, None)
            if not link.active:
                continue
            if count is None:
                lacking.append(at)
            else:
                yield Counter(name, f"GPU {link.gpu} link {link.link}", "NVLink", None, at, count)


def rising(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """The counters that rise faster than normal, as Fact of the shape RISING; an Unknown where the
    time is not known."""
    table = tables.get(TABLE, {})
    lacking: list[str] = []
    counters = list(counters_of(sections, lacking))
    missing = [one for one in map(why_null, lacking) if one.kind == "unread"]
    if not any(one.value for one in counters):
        return missing
    before, hours = _look(sections.node)
    if hours is None:
        return [*missing, why_null("node.uptime_s")]
    alike: dict[tuple[str, str], list[Counter]] = {}
    for one in counters if hours else ():
        alike.setdefault((one.kind, one.sort), []).append(one)
    found: list[Any] = missing
    packets: dict[tuple[str, str], int] = {}
    for (kind, sort), same in sorted(alike.items(), key=lambda pair: pair[0][0] != PACKETS):
        rises = [max(0, one.value - before.get(one.name, 0)) for one in same]
        if kind == PACKETS:
            packets.update(zip(((sort, one.device) for one in same), rises, strict=True))
        if any(rises) and not kind.endswith(TRAFFIC):
            work = [packets.get((sort, one.device), 0) for one in same]
            found += _odd_ones(same, rises, work, hours or 1, table.get(kind, {}), tables)
    return found


def _odd_ones(
    alike: Sequence[Counter], rises: Sequence[int], work: Sequence[int], hours: float,
    row: Mapping[str, Any], tables: Mapping[str, Any],
) -> Iterator[Fact]:  # fmt: skip
    """The counters of one kind that rise faster than is normal, or far faster than those of the
    other devices of their sort that do as much, where nobody but us has a normal rate. work: how
    many packets each received."""
    normal, rates = row.get("steady_per_hour"), [rise / hours for rise in rises]
    is_ours = not row or row.get("confidence") == "inferred"
    share = tables["like_units"]["hour"]["share"]
    far = distances(rates if is_ours else [0.0] * len(rises), FEWEST, share, "higher")
    for place, (one, rise) in enumerate(zip(alike, rises, strict=True)):
        peers = [*rises[:place], *rises[place + 1 :]]
        usual = median(peers) if peers else 0
        times = row.get("beside_peers", 0)
        stands_out = not times or (len(peers) > 1 and rise >= times * usual)
        is_fast = normal is not None and rise >= row["least"] and rise > normal * hours
        if (is_fast and stands_out) or (far[place] and work[place] <= MORE_WORK * median(work)):
            severity = _severity(row, rates[place])
            facts = {
                "counter": one.kind, "name": one.device, "pci_address": one.pci_address,
                "rise": rise, "hours": round(hours, 1), "per_hour": round(rates[place]),
                "normal": normal if is_fast else round(usual / hours),
                "peers": round(usual / hours),
                "severity": severity if is_fast or far[place] >= 2 else "info",
            }  # fmt: skip
            yield Fact(facts, RISING, one.path)


def _severity(row: Mapping[str, Any], per_hour: float) -> str:
    is_error = per_hour >= row.get("error_per_hour", per_hour + 1)
    return "error" if is_error else str(row.get("severity", "info"))


def hourly(sections: Any, normal: Mapping[str, float], why_null: Any) -> Any:
    """How often each of these counters of a node's ports rose in an hour, on the port where it rose
    most. normal: counter -> rises in an hour; a hundredth and less counts as none. None for a node
    without them, or whose ports were idle; an Unknown for what was not read."""
    lacking: list[str] = []
    counters = list(_of_ports(sections.network, lacking))
    missing = next((one for one in map(why_null, lacking) if one.kind == "unread"), None)
    if missing is not None or not any(one.kind in normal for one in counters):
        return missing
    before, hours = _look(sections.node)
    if not hours:
        return why_null("node.uptime_s") if hours is None else None
    found: dict[str, int] = {}
    for one in counters:
        rise = round((one.value - before.get(one.name, 0)) / hours)
        found[one.kind] = max(found.get(one.kind, 0), rise)
    if found.get(PACKETS, FEWEST_PACKETS) < FEWEST_PACKETS:
        return None
    return {
        kind: found[kind]
        for kind, usual in normal.items()
        if found.get(kind, 0) * TOLD_APART > usual
    }


def _look(node: Any) -> tuple[Mapping[str, int], float | None]:
    """The counters of the last run since this boot and the hours since then; none of them and
    those since boot without such a run. 0 hours: too short a time; None: not known."""
    if node is None or node.uptime_s is None:
        return {}, None
    earlier = node.earlier
    if earlier is not None and earlier.counters is not None and earlier.uptime_s is not None:
        since_s = node.uptime_s - earlier.uptime_s
        if since_s >= LEAST_LOOK_S:
            return earlier.counters, since_s / 3600
    return {}, node.uptime_s / 3600 if node.uptime_s >= LEAST_UPTIME_S else 0.0
