"""Which switch a node hangs on, from the inventory's own words."""

from __future__ import annotations

import pytest

from unhang.errors import UserError
from unhang.smoke.switches import read_switches, switch_of, switches_of_inventory

INVENTORY = """
[training:children]
leaf_a
leaf_b

[leaf_a]
gpu[001:002]

[leaf_b]
gpu003

[rack]
gpu004 unhang_switch=spine-7

[other]
gpu005
"""


@pytest.mark.parametrize(
    "groups, variables, switch",
    [
        (["training", "leaf_3"], {}, "leaf_3"), (["training", "leaf3"], {}, "leaf3"), (["switch_a"], {}, "switch_a"),
        (["leaf_a"], {"unhang_switch": "s7"}, "s7"),
        (["training"], {}, None), (["leafy_greens", "switches"], {}, None), ([], {"unhang_switch": ""}, None),
        (["leaf_a", "leaf_b"], {"unhang_switch": "b"}, "b"),
    ],
)  # fmt: skip
def test_the_variable_says_it_else_the_one_group_that_is_named_so(groups, variables, switch):
    assert switch_of(groups, variables) == switch


def test_two_groups_that_both_could_be_the_switch_are_an_error_that_names_them():
    with pytest.raises(UserError, match="leaf_a, leaf_b"):
        switch_of(["leaf_b", "leaf_a"], {})


def test_an_inventory_is_read_by_ansible_itself(tmp_path):
    path = tmp_path / "hosts.ini"
    path.write_text(INVENTORY)
    assert read_switches(str(path)) == {"gpu001": "leaf_a", "gpu002": "leaf_a", "gpu003": "leaf_b", "gpu004": "spine-7"}


def test_a_group_of_a_switchs_groups_counts_for_its_hosts():
    listed = {"leaf_a": {"children": ["rack1"]}, "rack1": {"hosts": ["gpu001"]}, "_meta": {"hostvars": {"gpu001": {}}}}
    assert switches_of_inventory(listed) == {"gpu001": "leaf_a"}


@pytest.mark.parametrize("text", [None, "all:\n  hosts: [1, 2\n"])
def test_an_inventory_that_is_not_there_or_no_inventory_is_reported_in_a_line(tmp_path, text):
    path = tmp_path / "hosts.yml"
    if text:
        path.write_text(text)
    with pytest.raises(UserError, match="--inventory"):
        read_switches(str(path))
