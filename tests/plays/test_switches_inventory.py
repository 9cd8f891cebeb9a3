"""Switches of nodes, from an inventory that Ansible itself reads."""

from __future__ import annotations

import pytest

from unhang.core.errors import UserError
from unhang.smoke.switches import read_switches

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


def test_an_inventory_is_read_by_ansible_itself(tmp_path):
    path = tmp_path / "hosts.ini"
    path.write_text(INVENTORY)
    assert read_switches(str(path)) == {
        "gpu001": "leaf_a",
        "gpu002": "leaf_a",
        "gpu003": "leaf_b",
        "gpu004": "spine-7",
    }


@pytest.mark.parametrize("text", [None, "all:\n  hosts: [1, 2\n"])
def test_an_inventory_that_is_not_there_or_no_inventory_is_reported_in_a_line(tmp_path, text):
    path = tmp_path / "hosts.yml"
    if text:
        path.write_text(text)
    with pytest.raises(UserError, match="--inventory"):
        read_switches(str(path))
