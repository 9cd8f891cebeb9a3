"""Cached results of the judge of policies are never used for a node with another deciding fact, or
without the waiver."""

from __future__ import annotations

import copy
import random

import pytest

from unhang.act.plan.policy_check import PolicyJudge
from unhang.core.run.documents import to_fragment
from unhang.judge.rules.compiled_catalogue import load_catalogue

TODAY = "2026-11-20"
CATALOGUE = load_catalogue()
OK = {"probe": {"status": "ok"}}
SECTIONS = {
    "gpus": {
        **OK,
        "count": 1,
        "model": "NVIDIA H200",
        "devices": [{"index": 0, "uuid": "GPU-0", "architecture": "hopper"}],
    },
    "driver": {
        **OK,
        "loaded": {"is_loaded": True, "version": "580.95.05", "flavour": "open"},
        "on_disk": {"version": "580.95.05"},
    },
    "kernel": {**OK, "release": "6.8.0-57-generic"},
    "network": {**OK, "has_rdma": False, "rdma": []},
}
NEWEST = {"driver": {"version": "595.91.07"}}
PROPRIETARY = {"driver": {"flavour": "proprietary", "version": "580.159.04"}}
DEADLOCKS = {"driver": {"version": "545.23.08"}}


def changed(path, value):
    sections = copy.deepcopy(SECTIONS)
    place = sections
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return to_fragment(sections)


HOPPER = to_fragment(SECTIONS)
VOLTA = changed(("gpus", "devices", 0, "architecture"), "volta")
BLACKWELL = changed(("gpus", "devices", 0, "architecture"), "blackwell")
GEFORCE = changed(
    ("gpus",),
    {
        **OK,
        "count": 2,
        "model": "NVIDIA GeForce RTX 3090",
        "devices": [{"index": 0, "architecture": "ampere"}],
    },
)


def refused(judge, policy, sections, host="gpu1", groups=()):
    return [one["rule"] for one in judge.refusals(host, groups, policy, sections)]


@pytest.mark.parametrize(("policy", "passes", "fails", "rule"), [
    (NEWEST, HOPPER, VOLTA, "policy-driver-drops-gpu"),
    (PROPRIETARY, HOPPER, BLACKWELL, "policy-flavour-not-for-gpu"),
])  # fmt: skip
def test_a_policy_that_one_node_may_have_is_refused_to_another_that_it_does_not_serve(
    policy, passes, fails, rule
):
    judge = PolicyJudge(CATALOGUE, TODAY)
    for _ in range(2):
        assert refused(judge, policy, passes) == []
        assert rule in refused(judge, policy, fails)


def test_a_waiver_of_some_hosts_lets_no_other_host_pass():
    waiver = {
        "rule": "driver-545-23-08-p2p-deadlock",
        "reason": "one GPU per job",
        "by": "ops",
        "until": "2027-01-01",
        "hosts": ["gpu1", "training"],
    }
    policy, judge = {**DEADLOCKS, "waivers": [waiver]}, PolicyJudge(CATALOGUE, TODAY)
    for _ in range(2):
        assert (
            refused(judge, policy, GEFORCE)
            == refused(judge, policy, GEFORCE, "gpu3", ["training"])
            == []
        )
        assert (
            refused(judge, policy, GEFORCE, "gpu2")
            == refused(judge, policy, GEFORCE, "gpu2", ["debug"])
            == ["driver-545-23-08-p2p-deadlock"]
        )


def test_a_rule_about_groups_is_judged_for_each_set_of_groups(tmp_path):
    row = """
rules:
  - id: policy-driver-not-for-debug
    title: The policy brings a driver into the group debug
    severity: error
    scope: node
    when: policy.driver.version is known and 'debug' in groups
    expected: no driver from the policy
    found: "{{ policy.driver.version }}"
    remedy: {person: take the node out of the group}
    sources: [{url: "https://example.invalid", says: an example}]
    confidence: documented
    examples:
      match: [{policy: {driver: {version: "580.95.05"}}, groups: [debug]}]
      near_miss: [{policy: {driver: {version: "580.95.05"}}, groups: [training]}]
"""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.yml").write_text(row)
    judge = PolicyJudge(load_catalogue([tmp_path]), TODAY)
    for _ in range(2):
        assert refused(judge, NEWEST, HOPPER, groups=["training"]) == []
        assert refused(judge, NEWEST, HOPPER, groups=["debug"]) == ["policy-driver-not-for-debug"]


@pytest.mark.parametrize("seed", range(3))
def test_what_was_judged_before_changes_no_refusal(seed):
    dice, shared, seen = random.Random(seed), PolicyJudge(CATALOGUE, TODAY), set()
    for _ in range(60):
        policy = dice.choice(
            (
                NEWEST,
                PROPRIETARY,
                DEADLOCKS,
                {"kernel": {"version": "5.4.0-172-generic"}},
                {"driver": {"flavour": "open"}},
            )
        )
        sections = dice.choice(
            (
                HOPPER,
                VOLTA,
                BLACKWELL,
                GEFORCE,
                changed(("gpus", "model"), "Tesla V100-SXM2-32GB"),
                changed(("network", "has_rdma"), True),
            )
        )
        alone = PolicyJudge(CATALOGUE, TODAY).refusals("gpu1", (), policy, sections)
        assert shared.refusals("gpu1", (), policy, sections) == alone
        seen.add(bool(alone))
    assert seen == {True, False}
