"""A healthy node with one change that an expert calls a fault: nearly all changes are found, with
the expected severity."""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_nodes import (
    PLATFORMS,
    catalogue,
    documents,
    found,
    found_in_group,
    found_on_node,
    schema_faults,
    words_of,
)
from healthy_sections import setting as one_setting

from unhang.core.catalogue.explains import explained_by
from unhang.core.strict_yaml import load_yaml

MUTATIONS = load_yaml(
    Path(__file__).resolve().parents[1] / "fixtures" / "incidents" / "mutations.yml"
)[0]["nodes"]
CASES = {
    f"{node}: {row['name']}": {"node": node, "severity": row["severity"],
    "changes": [{key: row[key] for key in row if key not in ("name", "severity")}]}
    for node, rows in MUTATIONS.items() for row in rows
}  # fmt: skip
GENERAL = "gpu-not-as-its-model-should-be"
HARMLESS = {
    "one PCIe replay": {
        "node": "h200_infiniband",
        "changes": [{"facts": {"gpus.devices[5].pcie.replays": 1}}],
    },
    "one retired page long ago": {
        "node": "t4_cloud_vm",
        "changes": [{"facts": {"gpus.devices[0].retired_pages.single_bit": 1}}],
    },
    "no NCCL_IB_DISABLE beside no RDMA card": {
        "node": "l40s_ethernet",
        "changes": [{"facts": {"nccl.settings": [one_setting("NCCL_SOCKET_IFNAME", "=eno1")]}}],
    },
    "one link lost once": {
        "node": "h200_infiniband",
        "changes": [
            {"facts": {"network.rdma[3].ports[0].counters": {"symbol_error": 0, "link_downed": 1}}}
        ],
    },
    "a few corrected errors of memory": {
        "node": "h200_infiniband",
        "changes": [{"facts": {"gpus.devices[5].ecc.corrected_volatile": 3}}],
    },
}
LOUDNESS = {"info": 0, "warning": 1, "error": 2, "critical": 3}
AIM = 0.95


def loudest(case):
    """The highest severity of the findings that the change caused, 0 without any."""
    return max((LOUDNESS[severity] for severity in found(case).values()), default=0)


def is_right(case):
    """Whether it was found with the expected severity, or the next higher one."""
    return loudest(case) - LOUDNESS[case["severity"]] in (0, 1)


def test_changed_nodes_are_such_as_the_collector_could_answer():
    assert {
        name: faults
        for name, case in CASES.items()
        if (faults := [fault for document in documents(case) for fault in schema_faults(document)])
    } == {}


def test_nearly_all_of_more_than_two_hundred_faults_are_found_with_the_right_severity():
    assert len(CASES) >= 270
    wrong = [name for name, case in CASES.items() if not is_right(case)]
    assert len(wrong) <= (1 - AIM) * len(CASES), wrong


def test_what_departs_from_the_table_of_models_is_folded_under_the_rule_that_names_it():
    """It is listed alone where no rule knows the fault."""
    rows = {rule.id: rule.row for rule in catalogue().rules}
    alone = set()
    for name, case in CASES.items():
        others = {rule for rule, severity in found(case).items() if severity != "info"} - {
            GENERAL, "unlike-the-others-of-its-node"
        }  # fmt: skip
        if GENERAL in found(case) and GENERAL not in {
            one for rule in others for one in explained_by(rows, rule)
        }:
            assert not others, name
            alone.add(name)
    assert alone, "no change shows what it is for"


@pytest.mark.parametrize("name", HARMLESS)
def test_what_costs_a_job_nothing_is_no_finding(name):
    assert found(HARMLESS[name]) == {}


@pytest.mark.parametrize(
    ("name", "rule", "message"),
    [
        ("h200_infiniband: one InfiniBand port down", "rdma-rail-down", "mlx5_3"),
        ("a100_roce: a rail down", "rdma-rail-down", "mlx5_3"),
        ("p5_efa: a card down", "rdma-rail-down", "rdmap88s0"),
        ("h200_infiniband: one port at 100 of 400", "rdma-rail-slow", "mlx5_3"),
        (
            "h200_infiniband: LD_PRELOAD of another NCCL for all users",
            "nccl-library-preloaded",
            "/etc/environment:3",
        ),
        ("h200_infiniband: half the power", "gpu-power-limit-far-below-default", "GPU 5"),
        ("h200_infiniband: 345 MHz at full load", "gpu-slow-under-load", "GPU 5"),
        (
            "h200_infiniband: one GPU's memory hotter than its limit under load",
            "gpu-hot-and-slow-under-load",
            "GPU 2",
        ),
        (
            "h200_infiniband: GPU device file closed to users",
            "gpu-device-file-closed",
            "/dev/nvidia3",
        ),
        (
            "h200_infiniband: gres.conf names seven of eight GPUs",
            "slurm-gpus-fewer-in-gres-conf",
            "7 device files",
        ),
        (
            "h200_infiniband: driver of a runfile over the packages",
            "driver-runfile-over-packages",
            "580.178.04",
        ),
    ],
)
def test_port_or_gpu_is_named(name, rule, message):
    assert any(message in shown for shown in words_of(documents(CASES[name])[0], rule))


@pytest.mark.parametrize("kind", PLATFORMS)
def test_healthy_node_of_every_kind_is_silent_above_info(kind):
    assert {
        rule: severity
        for rule, severity in found_on_node(PLATFORMS[kind]()).items()
        if severity != "info"
    } == {}


@pytest.mark.parametrize("kind", PLATFORMS)
def test_equal_healthy_nodes_of_every_kind_do_not_differ(kind):
    assert found_in_group([PLATFORMS[kind]() for _ in range(3)]) == {}
