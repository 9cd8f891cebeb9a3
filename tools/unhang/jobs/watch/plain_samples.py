"""Samples that another node sent: of each line the fields of a trace (`unhang/trace/1`) that have
their types, for the detector computes with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from unhang.core.strict_json import NotStrict, parse_strictly

MOST_NUMBER = 1e15
MOST_IN_A_LIST = 4096
_RANK = re.compile(r"[0-9]{1,9}")


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_NUMBER
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list) and len(value) <= MOST_IN_A_LIST and all(map(kind, value))
    )


_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (
            "t",
            "at",
            "every_s",
            "cpu_s",
            "children_cpu_s",
            "switches",
            "read_bytes",
            "write_bytes",
            "children",
            "disk_bytes",
            "call_bytes",
            "calls",
            "socket_bytes_s",
            "arrived_bytes_s",
            "compilers",
        ),
        _is_number,
    ),
    **dict.fromkeys(
        ("utilization_percent", "memory_activity_percent", "power_w", "clock_sm_mhz"), _is_number
    ),
    **dict.fromkeys(("gpu", "rank", "pid", "log_bytes", "carrier_changes"), _is_count),
    **dict.fromkeys(
        (
            "asked_as",
            "schema",
            "host",
            "state",
            "waiting",
            "silent",
            "lost",
            "why",
            "nic",
            "arrived_from",
            "log",
        ),
        _is_text,
    ),
    **dict.fromkeys(("up", "arrived_below"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("throttle", "left_out"), _is_list_of(_is_text)),
    "pids": _is_list_of(_is_count),
    "ranks": _is_list_of(lambda row: isinstance(row, dict)),
}


def plain_sample(line: bytes) -> dict[str, Any] | None:
    """The sample; None for a line that is none."""
    try:
        found = parse_strictly(line, half_characters=True)
    except NotStrict:
        return None
    if not isinstance(found, dict):
        return None
    sample = {key: value for key, value in found.items() if key in _FIELDS and _FIELDS[key](value)}
    if "ras" in found:
        sample["ras"] = _ras(found["ras"])
    if not {"cpu_s", "children_cpu_s"} <= sample.keys():
        sample.pop("cpu_s", None)
    if "schema" in sample and not {"host", "every_s", "ranks"} <= sample.keys():
        return None
    return sample


def _ras(answer: Any) -> dict[str, Any] | None:
    if not isinstance(answer, dict):
        return None
    counts, missing = answer.get("counts"), answer.get("missing")
    kept = (
        {
            rank: count
            for rank, count in counts.items()
            if _RANK.fullmatch(rank) and _is_count(count)
        }
        if isinstance(counts, dict)
        else {}
    )
    return {
        "counts": kept,
        "missing": [one for one in missing[:MOST_IN_A_LIST] if _is_count(one)]
        if isinstance(missing, list)
        else [],
    }
