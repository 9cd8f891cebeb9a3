"""The inventories that people start from."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
import yaml
from local_fleet import PROJECT, run

from unhang import project


def hosts_of(fleet, folder):
    """host: variables, as Ansible reads the inventory."""
    command = [project.ansible_program("ansible-inventory"), "-i", PROJECT / "inventory" / folder, "--list"]
    done = run(command, fleet.environment(), fleet.folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return json.loads(done.stdout)["_meta"]["hostvars"]


def policy_schema():
    """Contract 3."""
    return yaml.safe_load((PROJECT / "tools" / "unhang" / "schemas" / "policy-1.yaml").read_text())


def test_the_default_inventory_is_this_machine(fleet):
    assert list(hosts_of(fleet, "local")) == ["localhost"]


def test_the_example_has_nodes_with_a_valid_policy(fleet):
    hosts = hosts_of(fleet, "example")
    assert "gpu016" in hosts
    for variables in hosts.values():
        jsonschema_rs.validate(policy_schema(), variables["unhang_policy"])


@pytest.mark.parametrize("path", ["local/group_vars/all.yml", "example/group_vars/training.yml"])
def test_what_is_commented_out_is_valid_too(path):
    lines = (PROJECT / "inventory" / path).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip().startswith(("# unhang_policy:", "# waivers:")))
    content = yaml.safe_load("\n".join(line.strip().removeprefix("# ") for line in lines[start:]))
    jsonschema_rs.validate(policy_schema(), content.get("unhang_policy", content))


def test_nothing_in_the_example_weakens_ssh(fleet):
    for variables in hosts_of(fleet, "example").values():
        assert not [name for name in variables if "ssh" in name or "host_key" in name]
