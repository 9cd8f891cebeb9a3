"""The policies that people start from: valid, met by a healthy node of their kind, and not by one
that differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from healthy_nodes import a100_roce, h100_infiniband, rtx_4090_workstation, t4_cloud_vm
from test_healthy_nodes import verdicts_on

from unhang.core.schemas.check import check_schema

FOLDER = Path(__file__).resolve().parents[2] / "inventory" / "example" / "group_vars"
KINDS = {
    "training": h100_infiniband,
    "training_a100": a100_roce,
    "workstations": lambda: rtx_4090_workstation(4),
    "cloud": t4_cloud_vm,
}


def policy(name):
    return yaml.safe_load((FOLDER / f"{name}.yml").read_text())["unhang_policy"]


@pytest.mark.parametrize("name", KINDS)
def test_policy_follows_the_schema(name):
    assert list(check_schema(policy(name), "policy-1")) == []


@pytest.mark.parametrize("name", KINDS)
def test_healthy_node_of_its_kind_meets_the_policy(name):
    assert verdicts_on(KINDS[name](), ("fail", "unknown"), policy(name)) == set()


@pytest.mark.parametrize("name", KINDS)
def test_node_with_a_gpu_too_few_does_not_meet_it(name):
    document = KINDS[name]()
    document["sections"]["gpus"]["count"] -= 1
    assert ("policy-gpu-count", "fail") in verdicts_on(document, ("fail",), policy(name))


@pytest.mark.parametrize("name", KINDS)
def test_node_with_another_driver_does_not_meet_it(name):
    document = KINDS[name]()
    document["sections"]["driver"]["loaded"]["version"] = "535.154.05"
    found = {rule for rule, _ in verdicts_on(document, ("fail",), policy(name))}
    assert {"policy-driver-version", "policy-driver-min"} & found


@pytest.mark.parametrize("name", KINDS)
def test_every_value_of_the_policy_is_explained_beside_or_above_it(name):
    """Each top-level key has a comment of its own, here or in the policy that it differs from."""
    lines = (FOLDER / f"{name}.yml").read_text().splitlines()
    assert sum("#" in line for line in lines) >= 6
