"""The lines about documents of nodes that came: what contradicted itself, what belongs to nobody,
what could not be read."""

from __future__ import annotations

import sys

from unhang.audit.ways.arrivals import Arrived
from unhang.audit.ways.documents import claims_dropped
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.text import counted

SHOWN_LINES = 10


def say_arrived(arrived: Arrived) -> None:
    """Names what contradicted itself, what belongs to nobody and what could not be read."""
    lines = [*arrived.faults, *arrived.lines]
    for line in lines[:SHOWN_LINES]:
        sys.stderr.write(f"unhang: {line}\n")
    if len(lines) > SHOWN_LINES:
        sys.stderr.write(f"unhang: {len(lines) - SHOWN_LINES} more such lines are not shown\n")
    if arrived.twice:
        hosts = shortened(fold_hosts(arrived.twice), 120)
        sys.stderr.write(
            f"unhang: {counted(len(arrived.twice), 'node')} came more than once, one document of"
            f" each counts: {hosts}\n"
        )
    if arrived.claimed:
        sys.stderr.write(f"unhang: {claims_dropped(arrived.claimed)}\n")
