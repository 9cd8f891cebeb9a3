"""Where a finding is: the names by which people know the item that a rule looked at."""

from __future__ import annotations

import json

import judge_cases

from unhang.audit.report.folding import item_label
from unhang.core.run.run_input import read_run_input
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue

PORT = {
    "port": 1,
    "state": "active",
    "link_layer": "infiniband",
    "rate_gbps": 400.0,
    "lid": 4,
    "sm_lid": 1,
}


def places(tmp_path, rule, **more):
    facts = judge_cases.sections(**more)
    judge_cases.write_run(tmp_path / "run", judge_cases.node("gpu1", facts))
    judge_run(read_run_input(tmp_path / "run"), load_catalogue(), "2026-11-20")
    found = json.loads((tmp_path / "run" / "findings.json").read_text())["findings"]
    return [one["where"] for one in found if (one["rule"], one["verdict"]) == (rule, "fail")]


def test_a_port_is_named_by_its_device(tmp_path):
    cards = [
        {"name": f"mlx5_{number}", "ports": [PORT | {"sm_lid": 1 - number}]} for number in range(2)
    ]
    (where,) = places(
        tmp_path,
        "rdma-port-without-subnet-manager",
        network={"probe": judge_cases.OK, "rdma": cards},
    )
    assert where == {"path": "network.rdma[1].ports[0]", "port": 1, "name": "mlx5_1"}
    assert item_label(where) == "mlx5_1"


def test_the_card_that_differs_from_its_neighbours_is_named(tmp_path):
    link = {
        "generation_now": 5,
        "generation_max": 5,
        "generation_card": 5,
        "width_max": 16,
        "errors_fatal": 0,
        "errors_nonfatal": 0,
    }
    card = {
        "board": "MT_1",
        "driver": "mlx5_core",
        "ats_enabled": None,
        "ports": [PORT | {"gids": []}],
    }
    cards = [
        card | {"name": f"mlx5_{number}", "pcie": link | {"width_now": width}}
        for number, width in enumerate((16, 8))
    ]
    (where,) = places(
        tmp_path, "unlike-the-others-of-its-node", network={"probe": judge_cases.OK, "rdma": cards}
    )
    assert where == {
        "path": "network.rdma[1].pcie.width_now",
        "name": "mlx5_1",
        "field": "pcie.width_now",
    }
