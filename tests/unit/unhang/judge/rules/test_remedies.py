"""Remedies of one node are merged into one policy, or into a conflict with both reasons."""

from __future__ import annotations

import pytest

from unhang.judge.rules.remedies import INVENTORY, merge_requests
from unhang.judge.rules.remedies import PolicyRequest as Request


@pytest.mark.parametrize(
    ("wanted", "merged"),
    [
        ([{"driver": {"min": "535.104.05"}}, {"driver": {"min": "580.65.06", "held": True}}],
        {"driver": {"min": "580.65.06", "held": True}}),
        ([{"nccl": {"min": "2.9.6"}}, {"nccl": {"min": "2.28.9"}}], {"nccl": {"min": "2.28.9"}}),
        ([{"driver": {"max": "595.1.1"}}, {"driver": {"max": "580.999.99"}}],
        {"driver": {"max": "580.999.99"}}),
        ([{"limits": {"memlock_bytes": 1024}}, {"limits": {"memlock_bytes": -1}},
        {"limits": {"memlock_bytes": 4096}}], {"limits": {"memlock_bytes": -1}}),
        ([{"limits": {"nofile": 65536}}, {"limits": {"nofile": 131072}}],
        {"limits": {"nofile": 131072}}),
        (
            [{"nccl": {"settings": {"NCCL_NET": "IB"}}},
            {"nccl": {"settings": {"NCCL_DEBUG": "WARN"}}}],
            {"nccl": {"settings": {"NCCL_NET": "IB", "NCCL_DEBUG": "WARN"}}},
        ),
    ],
)  # fmt: skip
def test_one_policy_satisfies_all(wanted, merged):
    answer = merge_requests(
        [Request(f"rule-{number}", policy) for number, policy in enumerate(wanted)]
    )
    assert answer.policy == merged
    assert answer.conflicts == []


def test_the_inventorys_exact_driver_and_a_rule_that_wants_a_newer_one_are_a_conflict_with_both_reasons():
    answer = merge_requests(
        [
            Request("old-driver", {"driver": {"min": "580.65.06", "held": True}}),
            Request(INVENTORY, {"driver": {"version": "535.154.05"}}),
        ]
    )
    (conflict,) = answer.conflicts
    assert conflict["sides"] == [
        {"wants": "driver.min: 580.65.06", "because": "old-driver"},
        {"wants": "driver.version: 535.154.05", "because": "unhang_policy"},
    ]
    assert (
        conflict["decides"]
        == "unhang_policy decides what a role installs: change driver there, or waive old-driver"
    )


def test_an_inventory_that_agrees_is_no_conflict_and_no_part_of_the_answer():
    answer = merge_requests(
        [
            Request("old-driver", {"driver": {"min": "580.65.06"}}),
            Request(INVENTORY, {"driver": {"version": "580.95.05"}, "gpu": {"count": 8}}),
        ]
    )
    assert answer == ({"driver": {"min": "580.65.06"}}, [])


def test_two_values_of_one_setting_are_a_conflict():
    answer = merge_requests(
        [
            Request("one", {"nccl": {"settings": {"NCCL_NVLS_ENABLE": 0}}}),
            Request("two", {"nccl": {"settings": {"NCCL_NVLS_ENABLE": 1}}}),
        ]
    )
    (conflict,) = answer.conflicts
    assert [side["because"] for side in conflict["sides"]] == ["one", "two"]
    assert answer.policy == {}


def test_a_lower_bound_above_an_upper_bound_is_a_conflict():
    answer = merge_requests(
        [
            Request("fault", {"driver": {"max": "580.999.99"}}),
            Request("other-fault", {"driver": {"min": "595.91.07"}}),
        ]
    )
    (conflict,) = answer.conflicts
    assert conflict["key"] == "driver"
    assert "waive other-fault" in conflict["decides"] or "waive fault" in conflict["decides"]


def test_a_part_that_no_rule_asks_for_is_not_looked_at():
    odd = {"kernel": {"version": "5.4.0-1-generic", "min": "6.8.0-1-generic"}}
    assert merge_requests(
        [Request("one", {"host": {"persistence": True}}), Request(INVENTORY, odd)]
    ) == ({"host": {"persistence": True}}, [])
