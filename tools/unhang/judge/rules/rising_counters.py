"""Error counters of a node that rise faster than those of healthy hardware, by the table
`counter_rates`: since the last run of the same boot, else since boot. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from unhang.core.schemas.shapes import NUMBER, Shape
from unhang.judge.rules import like_things
from unhang.judge.rules.distances import distances, median
from unhang.judge.rules.like_things import Path, name_of, reads_of_row, things_of
from unhang.judge.rules.values import Fact, Unknown

TABLE = "counter_rates"
AN_HOUR, HOUR = "an hour", "hour"  # the field of counters, and their unit
LEAST_LOOK_S = 600.0  # between two runs; a shorter time shows little
LEAST_UPTIME_S = 3600.0  # what a boot and its first links count is no rate
FEWEST = 1000  # an hour; fewer accuse nobody without a known normal rate
MORE_WORK = 10  # times the packets of its like: a port with another purpose
TRAFFIC = "_packets"  # the end of the names of counters of what jobs send
PACKETS = "port_rcv_packets"
# A port that receives fewer in an hour, 4 GB of full packets, trains nothing; our own number.
FEWEST_PACKETS = 1_000_000
TOLD_APART = 100  # parts of a normal rate below this many are shown to nobody
NAME = Shape("text", identity=True)
CABLE = "clean or replace its transceiver and cable, then try another port of the switch"
RISING = Shape(
    "object",
    {
        "counter": NAME, "name": NAME, "pci_address": NAME, "rise": NUMBER,
        "hours": NUMBER, "per_hour": NUMBER, "normal": NUMBER, "peers": NUMBER,
        "severity": Shape("text", values=("error", "warning", "info")), "check": Shape("text"),
    },
)  # fmt: skip
"""rise: in so many hours; normal: what healthy hardware counts in one hour, at most; peers: what
its neighbours count in an hour, the median; severity: of so many an hour."""
TIMES = frozenset(
    [("node", "uptime_s"), ("node", "earlier", "uptime_s"), ("node", "earlier", "counters")]
)


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


def reads_of(tables: Mapping[str, Any]) -> frozenset[Path]:
    """The facts that decide how fast counters rise."""
    rows = tables.get(like_things.TABLE, {}).values()
    named = ({**row, "fields": [one.partition("=")[0] for one in row["rates"]]} for row in rows)
    return TIMES.union(*(reads_of_row(row, tables) for row in named if row["fields"]))


def counters_of(sections: Any, tables: Mapping[str, Any], why_null: Any) -> Iterator[Any]:
    """The counters of like things, as `rates` of like_things names them; an Unknown for each that
    was not read."""
    for row in tables.get(like_things.TABLE, {}).values():
        if not row["rates"]:
            continue
        things, missing = things_of(sections, row, tables, why_null)
        yield from missing
        for thing in things or ():
            sort = repr([row["things"], *(thing.given(name, tables).value for name in row["like"])])
            device = name_of(thing, row, tables)
            address = thing.given("pci_address", tables).value
            for rate in row["rates"]:
                field, _, kind = rate.partition("=")
                counts, path = thing.given(field, tables)
                many = isinstance(counts, dict)
                for name, count in counts.items() if many else [(kind, counts)]:
                    at = f"{path}.{name}" if many else path
                    if count is not None:
                        yield Counter(name, device, sort, address, at, count)
                    elif (why := why_null(at)).kind == "unread":
                        yield why


def rising(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """The counters that rise faster than normal, as Fact of the shape RISING; an Unknown where the
    time is not known."""
    table = tables.get(TABLE, {})
    every = list(counters_of(sections, tables, why_null))
    counters = [one for one in every if isinstance(one, Counter)]
    found: list[Any] = [one for one in every if isinstance(one, Unknown)]
    if not any(one.value for one in counters):
        return found
    before, hours = _look(sections.node)
    if hours is None:
        return [*found, why_null("node.uptime_s")]
    alike: dict[tuple[str, str], list[Counter]] = {}
    for one in counters if hours else ():
        alike.setdefault((one.kind, one.sort), []).append(one)
    packets: dict[tuple[str, str], int] = {}
    for (kind, sort), same in sorted(alike.items(), key=lambda pair: pair[0][0] != PACKETS):
        rises = [max(0, one.value - before.get(one.name, 0)) for one in same]
        if kind == PACKETS:
            packets.update(zip(((sort, one.device) for one in same), rises, strict=True))
        if any(rises) and not kind.endswith(TRAFFIC):
            work = [packets.get((sort, one.device), 0) for one in same]
            found += _odd_ones(same, rises, work, hours, table.get(kind, {}), tables)
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
            severity = row.get("severity", "info")
            if rates[place] >= row.get("error_per_hour", inf):
                severity = "error"
            facts = {
                "counter": one.kind, "name": one.device, "pci_address": one.pci_address,
                "rise": rise, "hours": round(hours, 1), "per_hour": round(rates[place]),
                "normal": normal if is_fast else round(usual / hours),
                "peers": round(usual / hours),
                "check": row.get("check", CABLE),
                "severity": severity if is_fast or far[place] >= 2 else "info",
            }  # fmt: skip
            yield Fact(facts, RISING, one.path)


def counted_parts(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """What a node's counters rose by in an hour, as Fact of the shape PART for its group."""
    table, found = tables.get(TABLE, {}), []
    counters = list(counters_of(sections, tables, why_null))
    for row in tables.get(like_things.TABLE, {}).values():
        normal = {one: table[one]["steady_per_hour"] for one in row["counters"] if one in table}
        own = [one for one in counters if one.path.startswith(row["list"].split(".")[0])]
        rose = _hourly(own, sections.node, normal, why_null) if normal else None
        if isinstance(rose, dict):
            value = ", ".join(f"{name}={count}" for name, count in sorted(rose.items()))
            value = value or like_things.NONE
            found.append(like_things.part_of(row, AN_HOUR, value, normal=normal, unit=HOUR))
        elif rose is not None:
            found.append(rose)
    return found


def _hourly(counters: Sequence[Any], node: Any, normal: Mapping[str, float], why_null: Any) -> Any:
    """How often each of these counters of a node rose in an hour, on the device where it rose most.
    normal: counter -> rises in an hour; a hundredth and less counts as none. None for a node
    without them, or whose ports were idle; an Unknown for what was not read."""
    missing = next((one for one in counters if isinstance(one, Unknown)), None)
    if missing is not None or not any(one.kind in normal for one in counters):
        return missing
    before, hours = _look(node)
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
    if earlier is not None and earlier.uptime_s is not None:
        since_s = node.uptime_s - earlier.uptime_s
        if since_s >= LEAST_LOOK_S:
            return earlier.counters, since_s / 3600
    return {}, node.uptime_s / 3600 if node.uptime_s >= LEAST_UPTIME_S else 0.0
