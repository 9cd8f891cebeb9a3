"""Which error counters rose faster than they do on healthy hardware, and faster than their own
peers. Values in, values out.

A counter that rises on healthy hardware is no evidence: on a healthy 8 x H200 one of NVLink's rose
on most of 144 links (docs/decisions/0014). So a counter stands out only where the catalogue's table
`counter_rates` has a normal rate for it, and where it is well above both that rate and what its
peers counted meanwhile.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from unhang_node.base.parse.values import as_map, number_of

# the device in front of a counter's name
COUNTED_OF = re.compile(r"(?:GPU \d+ link \d+|GPU \d+|\S+ port \d+|\S+) (.+)")
# The highest of 144 links of a healthy machine had 3.8 times the median of all in the recording of
# decision 0014.
TIMES_THE_PEERS = 10.0
LEAST_LOOK_S = 60.0  # the limits of the sources are for a minute

Rates = Mapping[str, float]


@dataclass(frozen=True)
class Rise:
    """One counter of one node that rose unusually. name: with its device; normal: how far it may
    rise in that time; peers: the median rise of its peers."""

    host: str
    name: str
    count: int
    normal: float
    peers: float

    @property
    def text(self) -> str:
        """For people."""
        others = f"{self.peers:g} on its peers" if self.peers else "none on its peers"
        return f"{self.name} rose by {self.count}, normal are up to {self.normal:g} and {others}"


def normal_rates(table: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """{counter: rises in a minute} of the table's rows that have such a rate."""
    return {str(row["counter"]): float(row["per_minute"]) for row in table if "per_minute" in row}


def outstanding(nodes: Sequence[Mapping[str, Any]], rates: Rates) -> list[Rise]:
    """Counters that stand out from their normal rate and their peers, the furthest above its normal
    rise first. nodes: evidence of each, rows of the result."""
    risen, zeros = _risen(nodes)
    found = []
    for kind, rows in risen.items() if rates else ():
        counts = sorted([0] * zeros[kind] + [row[2] for row in rows])
        for host, name, count, counted_s in rows if kind in rates else ():
            peers = median_without(counts, count)
            normal = rates[kind] * max(1.0, counted_s / LEAST_LOOK_S)
            if count > normal and count >= TIMES_THE_PEERS * peers:
                found.append(Rise(host, name, count, round(normal, 1), peers))
    return sorted(
        found, key=lambda rise: (-(rise.count + 1) / (rise.normal + 1), rise.host, rise.name)
    )


def median_without(counts: Sequence[int], one: int) -> float:
    """The median of sorted counts, one of them (its first) left out; 0 where nothing is left."""
    gone, others = bisect_left(counts, one), len(counts) - 1
    if not others:
        return 0.0
    low, high = ((others - 1) // 2, others // 2)
    return (counts[low + (low >= gone)] + counts[high + (high >= gone)]) / 2


class Risen(NamedTuple):
    """A counter of one node that rose. rise: by how much; seconds: in which time."""

    host: str
    name: str
    rise: int
    seconds: float


def _risen(nodes: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[Risen]], dict[str, int]]:
    """By kind of counter: those that rose, and how many did not."""
    risen: dict[str, list[Risen]] = {}
    read: dict[str, int] = {}
    for node in nodes:
        for kind, count in as_map(node.get("peers")).items():
            read[str(kind)] = read.get(str(kind), 0) + int(number_of(count))
        for counters in (node.get("nvlink"), node.get("counters")):
            for name, count in as_map(counters).items():
                kind = counter_kind(str(name))
                if kind and isinstance(count, int) and not isinstance(count, bool) and count > 0:
                    risen.setdefault(kind, []).append(
                        Risen(
                            str(node.get("host")),
                            str(name),
                            count,
                            number_of(node.get("counted_s")),
                        )
                    )
    return risen, {
        kind: min(4096, max(0, read.get(kind, 0) - len(rows))) for kind, rows in risen.items()
    }


def counter_kind(name: str) -> str | None:
    """GPU 0 link 3 replay errors -> replay errors; mlx5_0 port 1 symbol_error -> symbol_error."""
    found = COUNTED_OF.fullmatch(name)
    return found[1] if found else None
