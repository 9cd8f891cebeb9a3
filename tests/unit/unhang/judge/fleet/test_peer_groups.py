"""Which nodes are compared with each other."""

from __future__ import annotations

import json

import pytest
from judge_cases import OK, node, rule, sections, write_rules, write_run

from unhang.core.run.run_input import read_run_input
from unhang.core.schemas.policy import PolicyFile
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue

DRIVER = rule(None, id="differs", scope="group", compare="driver.loaded.version")
OLD, NEW = "580.95.05", "580.159.04"


def machines(
    name, count, groups, driver=OLD, model="NVIDIA H200", gpus=8, facts_more=None, mig=None, **more
):
    """Nodes with equal facts in these groups."""
    facts = sections(driver) | (facts_more or {})
    facts["gpus"] = {
        "probe": OK,
        "count": gpus,
        "model": model,
        "devices": [{"index": number, "model": model, "mig": mig} for number in range(gpus)],
    }
    return [
        node(f"{name}{number}", facts, groups=["all", *groups], **more)
        for number in range(1, count + 1)
    ]


def compared(tmp_path, *nodes, policy=None):
    """(group, hosts) of each difference."""
    tmp_path.mkdir(exist_ok=True)
    catalogue = load_catalogue([write_rules(tmp_path / "rules", DRIVER)], built_in=False)
    run = write_run(tmp_path / "run", *nodes)
    judge_run(read_run_input(run), catalogue, "2026-11-20", policy)
    return [
        (one["group"], one["hosts"])
        for one in json.loads((run / "findings.json").read_text())["findings"]
        if one["verdict"] == "fail"
    ]


def test_racks_within_a_group_do_not_end_the_comparison(tmp_path):
    nodes = [*machines("a", 3, ["h200", "rack1"], NEW), *machines("b", 3, ["h200", "rack2"])]
    assert compared(tmp_path, *nodes) == [("h200", ["a1", "a2", "a3", "b1", "b2", "b3"])]


def test_the_outlier_in_another_rack_is_named(tmp_path):
    nodes = [
        *machines("a", 3, ["h200", "rack1"]),
        *machines("b", 2, ["h200", "rack2"]),
        *machines("c", 1, ["h200", "rack3"], NEW),
    ]
    assert compared(tmp_path, *nodes) == [("h200", ["c1"])]


def test_partitions_and_switches_of_slurm_do_not_end_it(tmp_path):
    nodes = [
        *machines("a", 2, ["slurm", "slurm_partition_train", "slurm_switch_leaf1"]),
        *machines("b", 2, ["slurm", "slurm_partition_train", "slurm_switch_leaf2"]),
        *machines(
            "c",
            1,
            ["slurm", "slurm_partition_train", "slurm_partition_debug", "slurm_switch_leaf2"],
            NEW,
        ),
    ]
    assert compared(tmp_path, *nodes) == [("slurm+slurm_partition_train", ["c1"])]


@pytest.mark.parametrize(
    "other",
    [{"model": "NVIDIA A100-SXM4-80GB"}, {"gpus": 4}, {"policy": {"driver": {"min": "580.65.06"}}}],
)
def test_nodes_of_another_kind_that_share_a_group_are_not_compared(tmp_path, other):
    assert (
        compared(
            tmp_path,
            *machines("a", 3, ["fleet", "train"]),
            *machines("b", 3, ["fleet", "other"], NEW, **other),
        )
        == []
    )


FABRIC = {
    "network": {
        "probe": OK,
        "rdma": [{"name": "mlx5_0", "ports": [{"port": 1, "link_layer": "infiniband"}]}],
    }
}
POOLS = {
    "with InfiniBand": {"facts_more": FABRIC},
    "cut by MIG": {"mig": {"enabled": True, "pending": True}},
}


@pytest.mark.parametrize("other", POOLS.values(), ids=POOLS)
def test_pools_of_one_machine_with_another_use_are_not_compared(tmp_path, other):
    train = machines("a", 3, ["h200", "train"])
    assert compared(tmp_path, *train, *machines("b", 3, ["h200", "serve"], NEW, **other)) == []


def test_within_a_group_pools_cut_by_mig_and_nodes_without_gpus_are_not_compared(tmp_path):
    cut = POOLS["cut by MIG"]
    train = machines("a", 3, ["all"])
    assert compared(tmp_path / "pool", *train, *machines("b", 3, ["all"], NEW, **cut)) == []
    assert compared(tmp_path / "odd", *train, *machines("b", 1, ["all"], NEW, **cut)) != []
    gone = {"driver": {"probe": OK, "loaded": {"version": NEW, "is_loaded": False}}}
    head = machines("h", 1, ["all"], gpus=0, facts_more=gone)
    assert compared(tmp_path / "unread", *train, *head) != []
    head[0]["facts"]["sections"]["gpus"]["pci_count"] = 0
    assert compared(tmp_path / "head", *train, *head) == []


def test_one_policy_for_all_does_not_join_what_the_inventory_keeps_apart_by_its_policies(tmp_path):
    nodes = [
        *machines("a", 3, ["fleet", "train"], policy={"driver": {"min": "580.65.06"}}),
        *machines("b", 3, ["fleet", "dev"], NEW),
    ]
    assert compared(tmp_path, *nodes, policy=PolicyFile({}, {})) == []


def test_nodes_that_share_no_group_are_not_compared(tmp_path):
    assert compared(tmp_path, *machines("a", 3, ["train"]), *machines("b", 3, ["dev"], NEW)) == []


def test_a_node_that_lost_a_gpu_and_one_with_a_waiver_of_its_own_stay_with_their_peers(tmp_path):
    waiver = {"rule": "other", "reason": "known", "by": "ops", "until": "2030-12-31"}
    nodes = [
        *machines("a", 3, ["h200", "rack1"]), *machines("b", 1, ["h200", "rack2"], NEW, gpus=7),
        *machines("c", 1, ["h200", "rack3"], NEW, policy={"waivers": [waiver]}),
    ]  # fmt: skip
    assert compared(tmp_path, *nodes) == [("h200", ["b1", "c1"])]


def test_two_kinds_that_share_a_group_are_compared_each_within_itself(tmp_path):
    nodes = [
        *machines("a", 2, ["batch", "leaf1"]), *machines("b", 1, ["batch", "leaf2"], NEW),
        *machines("c", 2, ["batch", "leaf3"], model="NVIDIA L40S"),
        *machines("d", 1, ["batch", "leaf4"], NEW, model="NVIDIA L40S"),
    ]  # fmt: skip
    assert compared(tmp_path, *nodes) == [("batch", ["b1"]), ("batch+leaf3", ["d1"])]


def test_peers_of_a_policy_are_not_joined_with_others(tmp_path):
    nodes = [
        *machines("a", 3, ["h200", "rack1"]),
        *machines("b", 2, ["h200", "rack2"], NEW, policy={"peers": "trial"}),
    ]
    assert compared(tmp_path, *nodes) == []


def test_a_waiver_in_one_rack_alone_is_for_the_hosts_of_that_rack(tmp_path):
    waiver = {
        "rule": "differs",
        "reason": "upgrade",
        "by": "ops",
        "until": "2030-12-31",
        "hosts": ["b1"],
    }
    racks = machines("a", 3, ["h200", "rack1"])
    assert (
        compared(
            tmp_path / "waived",
            *racks,
            *machines("b", 1, ["h200", "rack2"], NEW, policy={"waivers": [waiver]}),
        )
        == []
    )
    others = [
        *machines("b", 1, ["h200", "rack2"], NEW, policy={"waivers": [waiver]}),
        *machines("c", 1, ["h200", "rack3"], NEW),
    ]
    assert compared(tmp_path / "not", *racks, *others) == [("h200", ["b1", "c1"])]
