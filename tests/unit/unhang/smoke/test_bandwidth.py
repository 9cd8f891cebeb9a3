"""Bandwidth is computed as in nccl-tests and compared with that of similar groups; stragglers are
found by median and MAD."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml

from unhang.core.smoke_result import Collective, Group
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.smoke.bandwidth import (
    bus_factor,
    collective_rows,
    judge_bandwidth,
    stragglers,
)
from unhang.smoke.expectations import read_expectations
from unhang.smoke.link_bounds import link_bound

CAPTURE = Path(__file__).resolve().parents[3] / "fixtures" / "h200x8" / "nccl-tests.txt"
HEALTHY = Path(__file__).resolve().parents[3] / "fixtures" / "healthy_bandwidth.yml"
H200 = Group("NVIDIA H200", 8, False, "nvlink")
H200_NVLS = Group("NVIDIA H200", 8, True, "nvlink")
GIB = 1 << 30
TABLE = read_expectations().bandwidth
NAMES = {
    "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "broadcast": "broadcast",
}


def measured(busbw, size=GIB, operation="all_reduce"):
    """One row of `collectives`."""
    return Collective(operation, size, busbw, measures="bandwidth")


def captured():
    """(operation, size, time_us, algbw, busbw) of nccl-tests' out-of-place columns on a healthy 8 x
    H200."""
    rows, operation = [], None
    for line in CAPTURE.read_text().splitlines():
        head = re.match(r"== (\w+)", line)
        operation = NAMES.get(head[1]) if head else operation
        found = re.match(
            r"\s*(\d+)\s+\d+\s+float\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", line
        )
        if found and operation and int(found[1]) >= 16 << 20:
            rows.append((operation, int(found[1]), *map(float, found.groups()[1:])))
    return rows


@pytest.mark.parametrize("operation, size, time_us, algbw, busbw", captured())
def test_our_columns_are_those_of_nccl_tests(operation, size, time_us, algbw, busbw):
    events = [
        {
            "e": "collective",
            "measures": "bandwidth",
            "op": operation,
            "dtype": "float32",
            "size_bytes": size,
            "time_us": time_us,
            "wrong": None,
        }
        for _ in range(8)
    ]
    [row] = collective_rows(events, 8)
    assert row.algbw_gb_s == pytest.approx(algbw, abs=0.02)
    assert row.busbw_gb_s == pytest.approx(busbw, abs=0.05)


def test_the_capture_has_all_five_operations():
    assert {row[0] for row in captured()} == set(NAMES.values())


@pytest.mark.parametrize(
    "group, busbw, verdict",
    [
        (H200, 362.0, "pass"),
        (H200_NVLS, 475.0, "pass"),
        (H200_NVLS, 362.0, "fail"),
        (H200, 180.0, "fail"),
    ],
    ids=[
        "ring is healthy at 362",
        "NVLS at 475",
        "NVLS on but no faster than a ring",
        "half of a ring",
    ],
)
def test_with_and_without_nvls_the_same_number_means_different_things(group, busbw, verdict):
    [row] = judge_bandwidth(group, [measured(busbw)], TABLE)
    assert row.verdict == verdict
    assert row.source.startswith("table bandwidth, h200x8-all-reduce")


UNKNOWN = [
    Group("NVIDIA H200", 3, False, "nvlink"), Group("Tesla T4", 8, False, "pcie"),
    Group("NVIDIA H200", 8, False, "net"), Group("NVIDIA H200", 8, False, "shm"),
    Group("NVIDIA H200 NVL", 4, False, "nvlink"),
    Group("NVIDIA A100 80GB PCIe", 8, False, "nvlink"),
]  # fmt: skip


@pytest.mark.parametrize("group", UNKNOWN, ids=str)
def test_where_nothing_is_known_nothing_is_judged_and_it_says_so(group):
    [row] = judge_bandwidth(group, [measured(1.0), measured(0.1, 1 << 20)], TABLE)
    assert (row.verdict, row.low_gb_s, row.size_bytes) == ("not judged", None, GIB)
    assert f"{group.gpus} × {group.gpu} over {group.transport} is not in the table" in row.source


@pytest.mark.parametrize(
    "group, operation, size, busbw, name",
    [
        (Group("NVIDIA H200", 4, False, "nvlink"), "all_reduce", GIB, 354.5, "h200x4-all-reduce"),
        (Group("NVIDIA H200", 4, False, "nvlink"), "all_gather", GIB, 325.2, "h200x4-all-gather"),
        (Group("NVIDIA H200", 4, False, "nvlink"), "broadcast", GIB, 359.2, "h200x4-broadcast"),
        (
            Group("NVIDIA A100-SXM4-80GB", 8, False, "nvlink"),
            "all_reduce",
            GIB,
            230.3,
            "a100x8-all-reduce-1g",
        ),
        (
            Group("NVIDIA A100-SXM4-40GB", 8, False, "nvlink"),
            "all_reduce",
            16 * GIB,
            234.9,
            "a100x8-all-reduce",
        ),
        (
            Group("NVIDIA A100-SXM4-40GB", 8, False, "nvlink"),
            "all_reduce",
            8 * GIB,
            235.3,
            "a100x8-all-reduce-1g",
        ),
        (
            Group("NVIDIA A100-SXM4-40GB", 16, False, "net"),
            "all_reduce",
            4 * GIB,
            188.5,
            "a100x16-all-reduce-net",
        ),
        (
            Group("NVIDIA H100 80GB HBM3", 8, True, "nvlink"),
            "all_reduce",
            4 * GIB,
            480.0,
            "h100x8-all-reduce-nvls",
        ),
    ],
)
def test_what_others_have_measured_passes_by_its_own_row(group, operation, size, busbw, name):
    [row] = judge_bandwidth(group, [measured(busbw, size, operation)], TABLE)
    assert (row.verdict, row.source) == ("pass", f"table bandwidth, {name}")
    [half] = judge_bandwidth(group, [measured(busbw / 2, size, operation)], TABLE)
    assert half.verdict == "fail"


@pytest.mark.parametrize(
    "row",
    yaml.safe_load(HEALTHY.read_text()),
    ids=lambda row: f"{row['gpus']}-{row['operation']}-{row['size_bytes'] >> 20}",
)
def test_no_healthy_machine_that_was_measured_is_accused(row):
    group = Group("NVIDIA H200", row["gpus"], False, "nvlink")
    rows = [measured(busbw, row["size_bytes"], row["operation"]) for busbw in row["busbw_gb_s"]]
    judged = judge_bandwidth(group, rows, TABLE)
    assert [one.verdict for one in judged] == ["pass"] * len(rows)
    assert all(one.busbw_gb_s >= 1.04 * one.low_gb_s for one in judged), (
        "another healthy machine may be a little slower than these"
    )
    [half] = judge_bandwidth(
        group, [measured(min(row["busbw_gb_s"]) / 1.5, row["size_bytes"], row["operation"])], TABLE
    )
    assert half.verdict == "fail"


def test_the_table_is_a_sound_part_of_the_catalogue():
    catalogue = load_catalogue([])
    assert "bandwidth" in catalogue.tables
    assert [fault for fault in catalogue.faults if "bandwidth" in fault] == []
    assert all(row["low_gb_s"] < row["high_gb_s"] for row in TABLE)


@pytest.mark.parametrize("seed", range(20))
def test_among_equals_nobody_is_a_straggler(seed):
    chance = random.Random(seed)
    assert stragglers({rank: 1000 * chance.gauss(1, 0.03) for rank in range(64)}) == []


@pytest.mark.parametrize("factor", [1.6, 3, 100])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_one_that_stands_out_is_a_straggler_on_any_scale(factor, scale):
    times = {rank: scale * (1 + 0.01 * (rank % 5)) for rank in range(8)}
    times[3] *= factor
    assert [rank for rank, _, _ in stragglers(times)] == [3]


def test_the_limit_comes_from_the_group_and_not_from_a_constant():
    calm = {rank: 100.0 + rank for rank in range(16)} | {16: 200.0}
    wild = {rank: 100.0 + 20 * rank for rank in range(16)} | {16: 420.0}
    assert [rank for rank, _, _ in stragglers(calm)] == [16]
    assert stragglers(wild) == []


def test_fewer_than_four_cannot_tell_who_is_odd():
    assert stragglers({0: 1.0, 1: 1.0, 2: 50.0}) == []


@pytest.mark.parametrize(
    "operation, ranks, factor",
    [
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("broadcast", 8, 1.0),
        ("all_to_all", 2, 0.5),
    ],
)
def test_factors_are_those_of_the_definition(operation, ranks, factor):
    assert bus_factor(operation, ranks) == factor


LINKS = {"GPU-0": {"nvlinks": 18, "nvlink_mb_s": 26562, "pcie_generation": 5, "pcie_width": 16},
         "GPU-1": {"nvlinks": 18, "nvlink_mb_s": 26562, "pcie_generation": 4,
         "pcie_width": 16}}  # fmt: skip


@pytest.mark.parametrize(
    "transport, at_most, message",
    [
        ("nvlink", 478.1, "18 NVLinks of 26.6 GB/s"),
        ("pcie", 31.5, "PCIe 4.0 x16"),
        ("shm", 31.5, "PCIe 4.0 x16"),
        ("net", None, "not in the table"),
    ],
)
def test_a_group_that_nobody_knows_is_told_what_its_links_carry_at_most(
    transport, at_most, message
):
    bound = link_bound(transport, [{"e": "nvlink", "pairs": [], "links": LINKS}])
    group = Group("NVIDIA L40S", 2, False, transport)
    [row] = judge_bandwidth(group, [measured(9.0, GIB, "all_gather")], TABLE, bound)
    assert (row.low_gb_s, row.high_gb_s, row.verdict) == (None, at_most, "not judged")
    assert message in row.source
    assert ("expected at most" in row.source) == (at_most is not None)


def test_nvlink_sharp_may_exceed_the_link_in_all_reduce_alone():
    bound = link_bound("nvlink", [{"e": "nvlink", "pairs": [], "links": LINKS}])
    rows = [measured(9.0, GIB, operation) for operation in ("all_reduce", "broadcast")]
    judged = judge_bandwidth(Group("NVIDIA X100", 8, True, "nvlink"), rows, TABLE, bound)
    assert [row.high_gb_s for row in judged] == [743.7, 478.1]


@pytest.mark.parametrize(
    "links",
    [
        None,
        5,
        {},
        {"a": 1},
        {"a": {"nvlinks": "many", "nvlink_mb_s": None}},
        {"a": {"nvlinks": 0, "nvlink_mb_s": 26562}},
    ],
)
def test_what_nodes_say_of_links_is_data(links):
    assert link_bound("nvlink", [{"e": "nvlink", "links": links}, {"e": "phase_end"}]) is None
    assert link_bound("pcie", [{"e": "nvlink", "links": links}]) is None
