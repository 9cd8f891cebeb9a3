"""The maximum that the links of a group's GPUs can carry, for groups that are in no table. Values
in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unhang.smoke.streams import Event
from unhang_node.base.parse.values import as_map, number_of

# Bytes that a lane carries in one direction, GB/s, after its line code:
# https://en.wikipedia.org/wiki/PCI_Express#Comparison_table
PCIE_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


@dataclass(frozen=True)
class LinkBound:
    """gb_s: in one direction, of the slowest GPU, which is the busbw of a ring at most: it sends
    each byte that busbw counts through every GPU's link.

    why: which links that is.
    """

    gb_s: float
    why: str

    def sharp_factor(self, ranks: int) -> float:
        """How far all_reduce may exceed it with NVLink SHARP: each GPU sends 1 + 1/n of the
        message, of which busbw counts 2(n-1)/n.

        https://github.com/NVIDIA/nccl/issues/2140
        """
        return 2 * (ranks - 1) / (ranks + 1)


def link_bound(transport: str, events: Iterable[Event]) -> LinkBound | None:
    """None if the nodes reported no such links, and for networks."""
    links = [
        as_map(row)
        for event in events
        if event["e"] == "nvlink"
        for row in as_map(event.get("links")).values()
    ]
    bounds = [
        bound
        for row in links
        if (
            bound := _nvlink(row)
            if transport == "nvlink"
            else _pcie(row)
            if transport in ("pcie", "shm")
            else None
        )
    ]
    return min(bounds, key=lambda bound: bound.gb_s, default=None)


def _nvlink(row: Mapping[str, Any]) -> LinkBound | None:
    count, speed_mb_s = int(number_of(row.get("nvlinks"))), number_of(row.get("nvlink_mb_s"))
    return (
        LinkBound(count * speed_mb_s / 1e3, f"{count} NVLinks of {speed_mb_s / 1e3:.1f} GB/s")
        if count > 0 and speed_mb_s > 0
        else None
    )


def _pcie(row: Mapping[str, Any]) -> LinkBound | None:
    generation, width = (
        int(number_of(row.get("pcie_generation"))),
        int(number_of(row.get("pcie_width"))),
    )
    lane = PCIE_LANE_GB_S.get(generation)
    return LinkBound(lane * width, f"PCIe {generation}.0 x{width}") if lane and width > 0 else None
