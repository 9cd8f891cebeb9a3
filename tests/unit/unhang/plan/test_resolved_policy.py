"""One policy of a host: the inventory is never overruled, proposals that agree are merged, and a conflict is named with both sides."""

from __future__ import annotations

import pytest

from unhang.plan.resolved_policy import Proposal, resolve_policy


def merged(policy, *proposals):
    return resolve_policy(policy, [Proposal(f"rule-{number}", one) for number, one in enumerate(proposals, 1)])


@pytest.mark.parametrize(
    ("policy", "proposals", "result"),
    [
        ({}, [{"driver": {"min": "580.65.06", "held": True}}], {"driver": {"min": "580.65.06", "held": True}}),
        ({"gpu": {"count": 8}}, [{"host": {"persistence": True}}], {"gpu": {"count": 8}, "host": {"persistence": True}}),
        ({}, [{"driver": {"min": "580.65.06"}}, {"driver": {"min": "595.91.07"}}], {"driver": {"min": "595.91.07"}}),
        ({}, [{"driver": {"min": "595.91.07"}}, {"driver": {"min": "580.65.06"}}], {"driver": {"min": "595.91.07"}}),
        ({"driver": {"min": "535.1"}}, [{"driver": {"min": "580.65.06"}}], {"driver": {"min": "580.65.06"}}),
        ({"driver": {"version": "580.159.04"}}, [{"driver": {"min": "580.65.06"}}], {"driver": {"version": "580.159.04"}}),
        ({"driver": {"max": "590.99"}}, [{"driver": {"max": "580.999.99"}}], {"driver": {"max": "580.999.99"}}),
        ({"kernel": {"min": "6.8.0-9-generic"}}, [{"kernel": {"min": "6.8.0-10"}}], {"kernel": {"min": "6.8.0-10"}}),
        (
            {"nccl": {"settings": {"NCCL_DEBUG": "WARN"}}},
            [{"nccl": {"settings": {"NCCL_NET": "IB"}}}],
            {"nccl": {"settings": {"NCCL_DEBUG": "WARN", "NCCL_NET": "IB"}}},
        ),
        ({"host": {"persistence": True}}, [{"host": {"persistence": True}}], {"host": {"persistence": True}}),
    ],
)
def test_proposals_that_agree_are_merged(policy, proposals, result):
    found = merged(policy, *proposals)
    assert (found.policy, found.conflicts) == (result, {})


@pytest.mark.parametrize(
    ("policy", "proposal", "says"),
    [
        (
            {"driver": {"version": "545.23.08"}},
            {"driver": {"min": "580.65.06"}},
            "unhang_policy.driver.version is 545.23.08, and the remedy is driver.min 580.65.06",
        ),
        ({"driver": {"version": "595.91.07"}}, {"driver": {"max": "580.999.99"}}, "unhang_policy.driver.version is 595.91.07"),
        ({"driver": {"max": "550.1"}}, {"driver": {"min": "580.65.06"}}, "unhang_policy.driver.max is 550.1"),
        ({"host": {"iommu": "off"}}, {"host": {"iommu": "passthrough"}}, "unhang_policy.host.iommu is off, and the remedy is passthrough"),
        ({"driver": {"held": False}}, {"driver": {"min": "580.65.06", "held": True}}, "unhang_policy.driver.held is False"),
        ({"nccl": {"settings": {"NCCL_DEBUG": "INFO"}}}, {"nccl": {"settings": {"NCCL_DEBUG": "WARN"}}}, "unhang_policy.nccl.settings.NCCL_DEBUG is INFO"),
        ({"driver": {"version": "no version"}}, {"driver": {"min": "580.65.06"}}, "unhang_policy.driver.version is no version"),
    ],
)
def test_the_inventory_is_not_overruled(policy, proposal, says):
    found = merged(policy, proposal)
    assert found.policy == policy
    assert says in found.conflicts["rule-1"]


def test_two_rules_that_contradict_are_both_named():
    found = merged({}, {"driver": {"max": "550.1"}}, {"driver": {"min": "580.65.06"}})
    assert found.policy == {"driver": {"max": "550.1"}}
    assert found.conflicts == {"rule-2": "driver.max as rule-1 has it is 550.1, and the remedy is driver.min 580.65.06"}


def test_a_proposal_counts_as_a_whole():
    found = merged({"driver": {"held": False}}, {"driver": {"min": "580.65.06", "held": True}})
    assert "min" not in found.policy["driver"]


def test_the_order_of_findings_changes_nothing_and_nothing_given_is_changed():
    policy = {"driver": {"held": True}}
    given = [Proposal("b", {"driver": {"min": "580.65.06"}}), Proposal("a", {"driver": {"max": "550.1"}})]
    assert resolve_policy(policy, given) == resolve_policy(policy, given[::-1])
    assert policy == {"driver": {"held": True}}
