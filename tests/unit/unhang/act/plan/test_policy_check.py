"""A policy is judged before it is applied: the recorded node, as the policy would make it."""

from __future__ import annotations

import pytest

from unhang.act.plan.policy_check import SET, STAYS, decides, foreseen_sections, refusals_of
from unhang.judge.rules.compiled_catalogue import load_catalogue

TODAY = "2026-11-20"
CATALOGUE = load_catalogue()
GPUS = {
    "probe": {"status": "ok"},
    "count": 2,
    "model": "NVIDIA GeForce RTX 3090",
    "devices": [{"index": 0, "uuid": "GPU-0", "architecture": "ampere"}],
}
LOADED = {"is_loaded": True, "version": "535.154.05", "flavour": "proprietary"}


def document(policy, status="ok", gpus=GPUS, loaded=LOADED):
    """A node's file as a value."""
    sections = {
        "gpus": gpus,
        "driver": {
            "probe": {"status": "ok"},
            "loaded": loaded,
            "on_disk": {"version": loaded["version"]},
        },
    }
    facts = (
        {"schema": "unhang/node-facts/1", "collector": {"version": "0"}, "sections": sections}
        if status == "ok"
        else None
    )
    envelope = {
        "schema": "unhang/node/1",
        "host": "gpu001",
        "groups": ["training"],
        "policy": policy,
        "status": status,
        "message": None,
    }
    return {**envelope, "facts": facts}


def refused(policy, **more):
    return {one["rule"] for one in refusals_of(document(policy, **more), CATALOGUE, TODAY)}


@pytest.mark.parametrize(
    ("policy", "rules"),
    [
        ({"driver": {"version": "545.23.08"}}, {"driver-545-23-08-p2p-deadlock"}),
        ({"driver": {"version": "545.29.06", "held": True}}, {"driver-545-new-feature-branch"}),
        ({"driver": {"version": "535.154.05", "min": "580.65.06"}}, {"policy-not-usable"}),
        ({"kernel": {"version": "6.1.0-47-amd64", "min": "6.8"}}, {"policy-not-usable"}),
        ({"driver": {"version": "580.159.04"}}, set()),
        ({"driver": {"version": "535.154.05"}, "kernel": {"version": "6.8.0-85-generic"}}, set()),
        ({"nccl": {"settings": {"NCCL_DEBUG": "WARN"}}}, set()),
        ({}, set()),
    ],
)
def test_what_would_bring_in_a_known_fault_is_refused(policy, rules):
    assert refused(policy) == rules


def test_a_driver_that_no_longer_serves_the_gpus_is_refused():
    volta = {
        **GPUS,
        "model": "Tesla V100-SXM2-32GB",
        "devices": [{"index": 0, "uuid": "GPU-0", "architecture": "volta"}],
    }
    assert "policy-driver-drops-gpu" in refused({"driver": {"version": "595.91.07"}}, gpus=volta)


def test_a_flavour_that_does_not_serve_the_gpus_is_refused():
    blackwell = {
        **GPUS,
        "model": "NVIDIA B200",
        "devices": [{"index": 0, "uuid": "GPU-0", "architecture": "blackwell"}],
    }
    assert "policy-flavour-not-for-gpu" in refused(
        {"driver": {"flavour": "proprietary", "version": "580.159.04"}}, gpus=blackwell
    )


def test_a_fault_that_is_there_today_and_would_be_gone_refuses_nothing():
    assert (
        refused({"driver": {"version": "535.154.05"}}, loaded={**LOADED, "version": "545.23.08"})
        == set()
    )


@pytest.mark.parametrize(
    ("policy", "loaded"),
    [
        # the role installs a newer driver
        ({"driver": {"flavour": "open", "min": "580.65.06"}}, "545.23.08"),
        ({"kernel": {"version": "6.8.0-85-generic"}, "driver": {"min": "580.65.06"}}, "545.23.08"),
        ({"driver": {"version": "580.159.04"}, "kernel": {"min": "6.9"}}, "535.154.05"),
    ],
)
def test_what_the_policy_leaves_as_it_is_refuses_nothing_for_a_role_may_mend_it(policy, loaded):
    kernel = {"probe": {"status": "ok"}, "release": "6.8.0-40-generic"}
    node = document(policy, loaded={**LOADED, "version": loaded})
    node["facts"]["sections"]["kernel"] = kernel
    assert refusals_of(node, CATALOGUE, TODAY) == []


def test_how_long_a_node_has_been_up_is_no_fault_of_its_policy():
    blackwell = {
        **GPUS,
        "model": "NVIDIA B200",
        "devices": [{"index": 0, "uuid": "GPU-0", "architecture": "blackwell"}],
    }
    node = document({"driver": {"version": "580.95.05", "flavour": "open"}}, gpus=blackwell)
    node["facts"]["sections"]["node"] = {"probe": {"status": "ok"}, "uptime_s": 6_000_000}
    assert refusals_of(node, CATALOGUE, TODAY) == []


def test_a_waiver_lets_a_policy_through():
    waiver = {
        "rule": "driver-545-23-08-p2p-deadlock",
        "reason": "one GPU per job",
        "by": "ops",
        "until": "2027-01-01",
    }
    assert refused({"driver": {"version": "545.23.08"}, "waivers": [waiver]}) == set()


def test_a_policy_that_cannot_be_used_is_refused():
    (one,) = refusals_of(document({"driver": {"versoin": "1"}}), CATALOGUE, TODAY)
    assert one["rule"] == "policy-not-usable"
    assert "versoin" in one["found"]


def test_a_node_that_was_not_read_refuses_nothing_here():
    assert refused({"driver": {"version": "545.23.08"}}, status="unreachable") == set()


def test_only_the_named_facts_are_changed():
    before = {
        "driver": {"loaded": LOADED, "packages": [1]},
        "kernel": {"release": "6.1", "installed": [2]},
        "gpus": GPUS,
    }
    after = foreseen_sections(
        before,
        {"driver": {"version": "580.159.04", "flavour": "open"}, "kernel": {"version": "6.8"}},
    )
    assert after["driver"]["loaded"] == {
        "is_loaded": True,
        "version": "580.159.04",
        "flavour": "open",
    }
    assert after["driver"]["packages"] == [1]
    assert after["kernel"] == {"release": "6.8", "installed": [2]}
    assert before["driver"]["loaded"] == LOADED
    assert foreseen_sections(before, {"driver": {"min": "580"}}) == before


def test_rules_that_compare_with_what_the_roles_bring_along_do_not_decide():
    rules = {rule.id: rule for rule in CATALOGUE.rules}
    assert decides(rules["driver-545-23-08-p2p-deadlock"])
    assert not decides(rules["fabric-manager-version-differs"])
    assert not decides(rules["driver-560-p2p-hang"])  # a warning
    assert SET.isdisjoint(STAYS)
