"""The role that CONTRIBUTING.md shows in full, run as printed there on a planted file tree."""

from __future__ import annotations

import page_commands
from fakes.ansible_module import tree
from fakes.node_tree import plant
from fakes.role_play import play_here

SETTING = "etc/sysctl.d/90-unhang-swappiness.conf"


def test_it_previews_applies_changes_nothing_again_and_is_taken_back(tmp_path):
    shown = list(page_commands.shown()["role"].items())
    assert len(shown) == 4
    for name, text in shown:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)  # beside the playbook, where Ansible looks for roles
    node = tmp_path / "node"
    plant(node, {"/etc/os-release": "ID=debian\n", "/var/lib/": ""})
    variables = {"swappiness_rootfs": str(node), "unhang_policy": {"host": {"swappiness": 10}}}

    before = tree(node)
    foretold = play_here(tmp_path, "swappiness", variables, "--check", "--diff")
    assert (foretold.code, tree(node)) == (0, before)
    assert "+vm.swappiness = 10" in foretold.output

    applied = play_here(tmp_path, "swappiness", variables)
    assert (applied.code, applied.changed) == (0, foretold.changed)
    assert (node / SETTING).read_text().endswith("\nvm.swappiness = 10\n")
    assert play_here(tmp_path, "swappiness", variables).changed == {"planted": 0}

    assert play_here(tmp_path, "swappiness", {**variables, "swappiness_state": "absent"}).code == 0
    assert not (node / SETTING).exists()
