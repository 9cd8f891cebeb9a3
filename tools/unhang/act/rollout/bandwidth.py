"""The bandwidth of a rollout's nodes after the change. Values in, values and lines
out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unhang.core.text import counted

Rates = Sequence[Mapping[str, Any]]  # rates of one node: {op, size_bytes, busbw_gb_s}
WHEN = (
    ("alone", "alone after the change"),
    ("last", "in the last test"),
)


def span_of(nodes: Iterable[Rates]) -> list[dict[str, Any]]:
    """The range from the slowest to the fastest node, for each collective and size: [{op,
    size_bytes, nodes, lowest_gb_s, highest_gb_s}]."""
    measured: dict[tuple[str, int], list[float]] = {}
    for rates in nodes:
        for one in rates:
            measured.setdefault((one["op"], one["size_bytes"]), []).append(one["busbw_gb_s"])
    return [
        {
            "op": op,
            "size_bytes": size,
            "nodes": len(seen),
            "lowest_gb_s": min(seen),
            "highest_gb_s": max(seen),
        }
        for (op, size), seen in measured.items()
    ]


def rates_of(row: Mapping[str, Any]) -> dict[str, Rates]:
    """The rates that were measured on one host of the status, by the names in WHEN."""
    return {
        "alone": row["bandwidth_alone"],
        "last": row["bandwidth"],
    }


def describe_bandwidth(rows: Iterable[Mapping[str, Any]], largest_only: bool = False) -> list[str]:
    """One line for each collective and size of these hosts of the status. largest_only: only the
    largest message of each collective."""
    rates, lines = [rates_of(row) for row in rows], dict[tuple[str, int], list[str]]()
    for name, when in WHEN:
        for one in span_of(each[name] for each in rates):
            speed = f"{one['lowest_gb_s']:.1f}" + (
                f" to {one['highest_gb_s']:.1f}" if one["highest_gb_s"] > one["lowest_gb_s"] else ""
            )
            lines.setdefault((one["op"], one["size_bytes"]), []).append(
                f"{speed} GB/s {when} ({counted(one['nodes'], 'node')})"
            )
    largest = {op: max(size for other, size in lines if other == op) for op, _ in lines}
    return [
        f"busbw {op} at {size:,} bytes: {', '.join(parts)}"
        for (op, size), parts in lines.items()
        if not largest_only or size == largest[op]
    ]
