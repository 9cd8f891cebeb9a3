"""The ends of burn-ins, as ranks report them and as the judge answers."""

from __future__ import annotations

from unhang.core.verdict.streams import Stream, stories
from unhang.smoke.burn_in import burn_in_of

CLOCKS = {
    "sm_mhz": 1700.0,
    "power_w": 690.0,
    "temperature_c": 60.0,
    "held_back": {"power cap": 0.9},
}


def stream(host="gpu001", dcgm=None, **results):
    """A node whose four ranks ended their burn-in. results: of rank0, rank1, ... where they differ;
    dcgm: fields of that event."""
    asked = [] if dcgm is None else [{"e": "dcgm", "host": host, "level": 1, "code": 0, **dcgm}]
    rows = [
        results.get(f"rank{rank}")
        or {
            "types": {"bfloat16": {"results": 4000, "tflop_s": 700.0}},
            "left_out": {},
            "clocks": CLOCKS,
        }
        for rank in range(4)
    ]
    events = [[{"e": "phase_begin", "rank": rank, "phase": "burn_in"}, {"e": "phase_end", "rank": rank, "phase": "burn_in", "status": "ok", "result": row},
               {"e": "rank_end", "rank": rank}] for rank, row in enumerate(rows)]  # fmt: skip
    return Stream(
        host,
        (0, 1, 2, 3),
        (*asked, *(event for row in events for event in row), {"e": "node_end", "codes": {}}),
    )


def burned_in(dcgm):
    """The result's burn_in of such a node; dcgm: its verdict."""
    found = burn_in_of([stream()], stories([stream()]))
    return {
        **found,
        "dcgm": [{"host": "gpu001", "level": 1, "verdict": dcgm, "failed": [], "notes": []}],
    }
