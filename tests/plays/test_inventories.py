"""The inventories that users begin with."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
import yaml
from local_fleet import PROJECT, run

from unhang.core.ansible import ansible_env


def hosts_of(fleet, folder):
    """{host: variables}, as Ansible reads the inventory."""
    command = [
        ansible_env.ansible_program("ansible-inventory"),
        "-i",
        PROJECT / "inventory" / folder,
        "--list",
    ]
    done = run(command, fleet.environment(), fleet.folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return json.loads(done.stdout)["_meta"]["hostvars"]


def policy_schema():
    """Contract 3."""
    return yaml.safe_load(
        (PROJECT / "tools" / "unhang" / "core" / "schemas" / "policy-1.yaml").read_text()
    )


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
    start = next(
        number
        for number, line in enumerate(lines)
        if line.strip().startswith(("# unhang_policy:", "# waivers:"))
    )
    content = yaml.safe_load("\n".join(line.strip().removeprefix("# ") for line in lines[start:]))
    jsonschema_rs.validate(policy_schema(), content.get("unhang_policy", content))


def test_nothing_in_the_example_weakens_ssh(fleet):
    for variables in hosts_of(fleet, "example").values():
        assert not [name for name in variables if "ssh" in name or "host_key" in name]


def test_a_node_set_in_the_limit_of_plain_ansible_is_refused_with_its_hosts(fleet):
    (fleet.folder / "hosts").write_text("[gpu]\ngpu001\ngpu002\ngpu003\ngpu004\n")
    command = [
        ansible_env.ansible_program("ansible-playbook"),
        PROJECT / "playbooks" / "audit.yml",
        "-i",
        fleet.folder / "hosts",
        "--list-hosts",
        "--limit",
    ]
    refused = run([*command, "gpu[001-003]"], fleet.environment(), fleet.folder)
    assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (2, "", 1)
    assert (
        "--limit gpu[001-003]: ansible-playbook does not read gpu[001-003] as a set of hosts; write"
        " --limit 'gpu001,gpu002,gpu003'" in refused.stderr
    )
    taken = run([*command, "gpu[0:1]"], fleet.environment(), fleet.folder)
    assert taken.returncode == 0 and sorted(taken.stdout.split()[-2:]) == ["gpu001", "gpu002"]
