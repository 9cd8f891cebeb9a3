"""Samples that another node sent: the fields of a trace (`unhang/trace/1`), for the detector
computes with them. A line in which one has another type is none."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec

from unhang.core.strict_json import NotStrict, parse_strictly

_MOST = 10**15
Number = Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)]
Count = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
Few = msgspec.Meta(max_length=4096)
# None is a process of no known rank
Rank = Annotated[str, msgspec.Meta(pattern=r"\A([0-9]{1,9}|None)\Z")]


class Ras(TypedDict, total=False):
    counts: dict[Rank, Count]
    missing: Annotated[list[Count], Few]


class Sample(TypedDict, total=False):
    """What the detector reads of a line."""

    t: Number
    at: Number
    every_s: Number
    cpu_s: Number
    children_cpu_s: Number
    switches: Number
    read_bytes: Number
    write_bytes: Number
    children: Number
    disk_bytes: Number
    call_bytes: Number
    calls: Number
    socket_bytes_s: Number
    arrived_bytes_s: Number
    compilers: Number
    utilization_percent: Number
    memory_activity_percent: Number
    power_w: Number
    clock_sm_mhz: Number
    gpu: Count
    rank: Count
    pid: Count
    log_bytes: Count
    carrier_changes: Count
    asked_as: str
    schema: str
    host: str
    state: str
    waiting: str
    silent: str
    lost: str
    why: str
    nic: str
    arrived_from: str
    log: str
    up: bool
    arrived_below: bool
    throttle: Annotated[list[str], Few]
    left_out: Annotated[list[str], Few]
    pids: Annotated[list[Count], Few]
    ranks: Annotated[list[dict[str, Any]], Few]
    ras: Ras | None


def plain_sample(line: bytes) -> dict[str, Any] | None:
    """The sample; None for a line that is none."""
    try:
        found = parse_strictly(line, half_characters=True)
        if not isinstance(found, dict):
            return None
        known = {key: value for key, value in found.items() if value is not None or key == "ras"}
        sample: dict[str, Any] = msgspec.convert(known, Sample)
    except (NotStrict, msgspec.ValidationError):
        return None
    if not {"cpu_s", "children_cpu_s"} <= sample.keys():
        sample.pop("cpu_s", None)
    if "schema" in sample and not {"host", "every_s", "ranks"} <= sample.keys():
        return None
    return sample
