"""The switch of each node, from the inventory."""

from __future__ import annotations

import pytest

from unhang.core.errors import UserError
from unhang.smoke.switches import switch_of, switches_of_inventory


@pytest.mark.parametrize(
    "groups, variables, switch",
    [
        (["training", "leaf_3"], {}, "leaf_3"), (["training", "leaf3"], {}, "leaf3"),
        (["switch_a"], {}, "switch_a"),
        (["leaf_a"], {"unhang_switch": "s7"}, "s7"),
        (["training"], {}, None), (["leafy_greens", "switches"], {}, None),
        ([], {"unhang_switch": ""}, None),
        (["leaf_a", "leaf_b"], {"unhang_switch": "b"}, "b"),
    ],
)  # fmt: skip
def test_the_variable_says_it_else_the_one_group_that_is_named_so(groups, variables, switch):
    assert switch_of(groups, variables) == switch


def test_two_groups_that_both_could_be_the_switch_are_an_error_that_names_them():
    with pytest.raises(UserError, match="leaf_a, leaf_b"):
        switch_of(["leaf_b", "leaf_a"], {})


def test_a_group_of_a_switchs_groups_counts_for_its_hosts():
    listed = {
        "leaf_a": {"children": ["rack1"]},
        "rack1": {"hosts": ["gpu001"]},
        "_meta": {"hostvars": {"gpu001": {}}},
    }
    assert switches_of_inventory(listed) == {"gpu001": "leaf_a"}
