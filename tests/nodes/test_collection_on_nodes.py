"""The collection unhang.ops on a booted node, from a folder that knows no checkout: the example of
gpu_driver's page is a preview of the driver that the node's repository offers."""

from __future__ import annotations

import subprocess

import audits
import installed_collection
import yaml
from driver_node import NEW, OLD, prepare
from installed_collection import blocks_of
from role_plays import state_of

NODE = "gpu001"


def changeable(fleet):
    """Without the folder in which Ansible's defaults place modules while they run."""
    return [line for line in state_of(fleet, NODE).splitlines() if "/root/.ansible" not in line]


def test_the_example_of_gpu_driver_is_previewed_on_a_node(fleet, tmp_path):
    prepare(fleet, NODE, tmp_path)
    archive = installed_collection.build(tmp_path / "archive")
    site = installed_collection.install(archive, tmp_path)
    shown = blocks_of("gpu_driver")
    policy = yaml.safe_load(shown["group_vars/training.yml"])["unhang_policy"]
    policy["driver"]["version"] = NEW  # the page names a release that this repository has not
    site.write("group_vars/training.yml", yaml.safe_dump({"unhang_policy": policy}))
    site.write("site.yml", shown["site.yml"])
    site.write("hosts.json", audits.inventory_of(fleet.bed, {"training": [NODE]}, {}))
    before = changeable(fleet)
    programs = [site.python, "-m", "ansible", "playbook", "site.yml", "-i", "hosts.json"]
    done = subprocess.run(
        fleet.bed.inside([*map(str, programs), "--check", "--diff"], site.folder),
        # a socket below the site's folder would have too long a path
        env={**site.environment(), "ANSIBLE_SSH_CONTROL_PATH_DIR": f"{fleet.bed.folder}/cp"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=audits.DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'"driver": "{NEW}"' in done.stdout and OLD in done.stdout, done.stdout
    assert changeable(fleet) == before
