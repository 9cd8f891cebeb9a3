"""Another user's job on the same node, for every replay: what it does is no progress of this job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

NEIGHBOUR_PID = 999_999
NEIGHBOUR_GPU = 7


def with_neighbour(lines: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The samples, and in each moment a GPU of another job that trains."""
    moment = None
    for line in lines:
        t = line.get("t")
        if t is not None and t != moment:
            moment = t
            yield {
                "t": t,
                "gpu": NEIGHBOUR_GPU,
                "utilization_percent": 97,
                "memory_activity_percent": 20,
                "power_w": 610.0,
                "clock_sm_mhz": 1755,
                "throttle": [],
                "pids": [NEIGHBOUR_PID],
            }
        yield dict(line)
