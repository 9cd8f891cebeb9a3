"""One policy of a host: the inventory is never overruled, proposals that agree are merged, and a
conflict is named with both sides."""

from __future__ import annotations

import pytest
from case_rows import case_rows

from unhang.act.plan.role_remedies import resolve_policy
from unhang.judge.rules.remedies import PolicyRequest

ROWS = case_rows(__file__)


def merged(policy, *proposals):
    return resolve_policy(
        policy, [PolicyRequest(f"rule-{number}", one) for number, one in enumerate(proposals, 1)]
    )


@pytest.mark.parametrize(
    ("policy", "proposals", "result"),
    ROWS["test_proposals_that_agree_are_merged"],
)
def test_proposals_that_agree_are_merged(policy, proposals, result):
    found = merged(policy, *proposals)
    assert (found.policy, found.conflicts) == (result, {})


@pytest.mark.parametrize(
    ("policy", "proposal", "wants"),
    ROWS["test_the_inventory_is_not_overruled"],
)
def test_the_inventory_is_not_overruled(policy, proposal, wants):
    found = merged(policy, proposal)
    assert found.policy == policy
    assert f"unhang_policy wants {wants}" in found.conflicts["rule-1"]
    assert "unhang_policy decides what a role installs" in found.conflicts["rule-1"]


def test_two_rules_that_contradict_are_both_left_out_and_named():
    found = merged(
        {},
        {"driver": {"max": "550.1", "held": True}},
        {"driver": {"min": "580.65.06"}},
        {"host": {"persistence": True}},
    )
    assert found.policy == {"host": {"persistence": True}}
    assert set(found.conflicts) == {"rule-1", "rule-2"}
    assert (
        "rule-2 wants driver.min: 580.65.06, and rule-1 wants driver.max: 550.1"
        in found.conflicts["rule-1"]
    )


def test_a_proposal_counts_as_a_whole():
    assert merged(
        {"driver": {"held": False}}, {"driver": {"min": "580.65.06", "held": True}}
    ).policy == {"driver": {"held": False}}


def test_what_is_left_is_looked_at_again():
    found = merged(
        {"driver": {"held": False}},
        {"driver": {"max": "550.1", "held": True}},
        {"driver": {"min": "580.65.06"}},
        {"driver": {"max": "560.1"}},
    )
    assert set(found.conflicts) == {"rule-1", "rule-2", "rule-3"}
    assert found.policy == {"driver": {"held": False}}


def test_nothing_given_is_changed():
    policy = {"driver": {"min": "535.1"}}
    resolve_policy(policy, [PolicyRequest("a", {"driver": {"min": "580.65.06"}})])
    assert policy == {"driver": {"min": "535.1"}}
