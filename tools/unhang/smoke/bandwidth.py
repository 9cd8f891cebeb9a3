"""Bandwidth as nccl-tests defines it, compared with similar groups; and the rank that is slower
than its peers.

Definitions: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md (algbw = size /
time; busbw = algbw x a factor per operation, so that it can be compared with the hardware's speed
whatever the number of ranks). GB/s are 10^9 bytes per second.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unhang.core.smoke_result import LARGE_BYTES, Collective, Group, JudgedRate, Transport
from unhang.smoke.link_bounds import LinkBound
from unhang.smoke.streams import Event, Story
from unhang_node.base.parse.values import as_map, number_of

SCALE_OF_MAD = 1.4826  # makes the MAD of normally spread times their standard deviation
STANDS_OUT = 6.0  # deviations from the median
# minimum of the MAD, as a share of the median: with a MAD of zero every rank would be a straggler
LEAST_SPREAD = 0.08  # minimum of the MAD, as a share of the median
FEWEST_FOR_STRAGGLERS = 4
POLICY = "the policy's bandwidth"  # name of its rows among those of the table
OTHER_CARDS = frozenset(("PCIe", "PCIE", "NVL"))  # cards of the same GPU with other links
NOT_IN_TABLE = "{group.gpus} × {group.gpu} over {group.transport} is not in the table"
# A message of a quarter of the table's size reaches 0.85 (all_to_all on two GPUs) to 0.98
# (broadcast) of what the table's size does on healthy machines with 2, 4 and 8 H200
# (tests/fixtures/healthy_bandwidth.yml); the rest is the room between machines.
OF_SMALLER = 0.8


def bus_factor(operation: str, ranks: int) -> float:
    """busbw / algbw."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0


def collective_rows(events: Iterable[Event], ranks: int) -> list[Collective]:
    """The result's `collectives`: one row per operation, dtype and size over all ranks. Times are
    averaged over ranks, as nccl-tests does."""
    groups: dict[tuple, list[Event]] = {}
    for event in events:
        if event["e"] == "collective" and event.get("measures") in ("correctness", "bandwidth"):
            key = (
                str(event.get("measures")),
                str(event.get("op")),
                str(event.get("dtype")),
                max(0, int(number_of(event.get("size_bytes")))),
            )
            groups.setdefault(key, []).append(event)
    rows = []
    for (measures, operation, dtype, size), members in groups.items():
        time_us = statistics.fmean(number_of(event.get("time_us")) for event in members)
        algbw = size / time_us / 1e3 if time_us > 0 else 0.0
        checked = [
            number_of(event.get("wrong")) for event in members if event.get("wrong") is not None
        ]
        rows.append(Collective(
            operation, size, round(algbw * bus_factor(operation, ranks), 2), dtype,
            round(time_us, 2), round(algbw, 2), int(sum(checked)) if checked else None, measures,
            len(members),
        ))  # fmt: skip
    return rows


def group_of(
    reported: Mapping[int, Story], logs: Sequence[Event], transports: Sequence[Transport]
) -> Group | None:
    """The group, from its ranks' own descriptions; None without GPUs, and for a single rank.

    logs: events of NCCL's log; transports: rows of the result.
    """
    facts = [story.facts for story in reported.values() if story.facts]
    devices = [as_map(story.result("binding").get("device")) for story in reported.values()]
    models = {str(device.get("model")) for device in devices if device}
    if not facts or len(reported) < 2 or len(models) != 1 or facts[0].get("backend") != "nccl":
        return None
    nvls = any(event.get("nvls") is True for event in logs)
    kinds = {row.kind for row in transports}
    slowest = next((kind for kind in ("net", "shm", "pcie") if kind in kinds), None)
    transport = slowest or ("nvlink" if kinds & {"nvlink", "p2p"} else "pcie")
    return Group(models.pop(), len(reported), nvls, transport)


def expectation(
    group: Group,
    row: Collective,
    table: Iterable[Mapping[str, Any]],
) -> tuple[float, float, str] | None:
    """(low_gb_s, high_gb_s, source) for one row, or None if unknown. The policy overrides the
    table. The nearest size below is taken, else the nearest above.
    """
    known = [one for one in table if _of_group(one, group, row.op)]
    known = [one for one in known if one["name"] == POLICY] or known
    fitting = [one for one in known if row.size_bytes >= max(LARGE_BYTES, one["size_bytes"] // 4)]
    if not fitting:
        return None
    one = min(
        fitting,
        key=lambda one: (
            one["size_bytes"] > row.size_bytes,
            abs(one["size_bytes"] - row.size_bytes),
        ),
    )
    low = one["low_gb_s"] * (1.0 if row.size_bytes >= one["size_bytes"] else OF_SMALLER)
    source = POLICY if one["name"] == POLICY else f"table bandwidth, {one['name']}"
    return round(low, 1), one["high_gb_s"], source


def _of_group(one: Mapping[str, Any], group: Group, operation: str) -> bool:
    """Whether a row of the table is about such a group."""
    model_words, wanted = set(re.split(r"[\s-]+", group.gpu)), set(re.split(r"[\s-]+", one["gpu"]))
    same_card = wanted <= model_words and not (model_words - wanted) & OTHER_CARDS
    nvls = group.nvls and operation == "all_reduce"
    return same_card and (one["gpus"], one["transport"], one["operation"], one["nvls"]) == (
        group.gpus,
        group.transport,
        operation,
        nvls,
    )


def judge_bandwidth(
    group: Group | None, rows: Iterable[Collective], table: Sequence[Mapping[str, Any]],
    bound: LinkBound | None = None,
) -> list[JudgedRate]:  # fmt: skip
    """One judgement per measured row.

    A row without a known expectation is not judged, and its source says so; high_gb_s is then the
    maximum of the group's links, if known (bound). Small messages, for which no table has values,
    are then omitted.
    """
    judged = []
    for row in rows if group else ():
        if row.measures != "bandwidth":
            continue
        assert group is not None
        measured = row.op, row.size_bytes, row.busbw_gb_s
        if wanted := expectation(group, row, table):
            verdict = "pass" if row.busbw_gb_s >= wanted[0] else "fail"
            judged.append(JudgedRate(*measured, *wanted, verdict))
        elif row.size_bytes >= LARGE_BYTES:
            at_most, source = not_judged(group, row.op, bound)
            judged.append(JudgedRate(*measured, None, at_most, source, "not judged"))
    return judged


def not_judged(group: Group, operation: str, bound: LinkBound | None) -> tuple[float | None, str]:
    """(high_gb_s, source) of an unknown group. Only all_reduce uses NVLink SHARP's sums."""
    text = (
        f"{NOT_IN_TABLE.format(group=group)} at this size, and the policy has no bandwidth for it"
        " (unhang policy --smoke)"
    )
    if bound is None:
        return None, text
    at_most = round(
        bound.gb_s
        * (bound.sharp_factor(group.gpus) if group.nvls and operation == "all_reduce" else 1.0),
        1,
    )
    return at_most, f"expected at most {at_most:g} by {bound.why}; {text}"


def stragglers(times: Mapping[int, float]) -> list[tuple[int, float, float]]:
    """(rank, its time, the median) of ranks whose time is an outlier by the group's median and MAD.
    Fewer than four ranks have no outlier."""
    if len(times) < FEWEST_FOR_STRAGGLERS:
        return []
    median = statistics.median(times.values())
    spread = SCALE_OF_MAD * statistics.median(abs(value - median) for value in times.values())
    limit = median + STANDS_OUT * max(spread, LEAST_SPREAD * median)
    return [(rank, value, median) for rank, value in sorted(times.items()) if value > limit]


def paces(reported: Mapping[int, Story]) -> dict[int, float]:
    """Time (us) of the same work on every rank, where it was reported."""
    return {
        rank: value
        for rank, story in reported.items()
        if (value := number_of(story.result("pace").get("pace_us"))) > 0
    }
