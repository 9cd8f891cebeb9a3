"""explain answers what people type: a piece of an error, a model without its space, a cause, a role, a policy key; and proposes what is near in meaning."""

from __future__ import annotations

import json

import pytest

from unhang import cli


def asked(capsys, *words):
    """The topics as (kind, id)."""
    assert cli.main(["explain", *words, "-o", "json"]) == 0
    return [(one["kind"], one["id"]) for one in json.loads(capsys.readouterr().out)["topics"]]


@pytest.mark.parametrize(
    ("typed", "topic"),
    [
        ("Watchdog caught collective operation timeout", ("message", "torch-watchdog-timeout")),
        ("RTX3090", ("gpu_models", "gpu_models/NVIDIA GeForce RTX 3090")),
        ("H100", ("gpu_models", "gpu_models/NVIDIA H100 80GB HBM3")),  # also the name of an incident
        ("acs_iommu", ("cause", "acs_iommu")),
        ("acs-iommu", ("cause", "acs_iommu")),
        ("gpu_driver", ("role", "gpu_driver")),
        ("driver.min", ("policy", "driver.min")),
        ("unhang_policy.host.iommu", ("policy", "host.iommu")),
    ],
)
def test_it_answers_what_is_typed(capsys, typed, topic):
    assert asked(capsys, typed)[0] == topic


@pytest.mark.parametrize(
    ("typed", "near"),
    [("persistence mode", "gpu-persistence-off"), ("bus lost", "gpu-fell-off-the-bus"), ("memlok", "memlock"), ("nvlnk down", "nvlink-all-down")],
)
def test_what_is_proposed_is_near_in_meaning(capsys, typed, near):
    assert cli.main(["explain", typed]) == 2
    assert near in capsys.readouterr().err


def test_a_rule_says_who_acts(capsys):
    cli.main(["explain", "xid-fatal"])
    assert "owner:         vendor" in capsys.readouterr().out


def test_a_rule_above_info_says_what_it_costs_and_on_which_healthy_machines_it_was_tried(capsys):
    cli.main(["explain", "driver-545-new-feature-branch", "-v", "-o", "json"])
    lines = dict(json.loads(capsys.readouterr().out)["topics"][0]["lines"])
    assert lines["severity"] == "error: jobs on this node hang"
    assert "desktop_two_5090" in lines["tried on"]
    assert "dgx_h100_580" not in lines["tried on"]


def test_a_rule_that_is_right_on_a_healthy_machine_says_where_it_speaks(capsys):
    cli.main(["explain", "pcie-width-below-max", "-v", "-o", "json"])
    lines = dict(json.loads(capsys.readouterr().out)["topics"][0]["lines"])
    assert lines["tried on"].endswith("; it speaks on desktop_two_5090, four_3090_capped")
