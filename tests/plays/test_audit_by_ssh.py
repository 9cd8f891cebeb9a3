"""`--via auto` says which way it takes and why, clush takes many hosts whose ssh does nothing but
start the command, and half an answer costs one node."""

from __future__ import annotations

import sys

import pytest
from documented_command import as_typed
from local_fleet import run

HOSTS = [f"gpu{number:03d}" for number in range(1, 66)]
# In the place of ssh: the last word is the command for the node's shell, the word before it the
# address.
SSH = """#!/bin/sh
for word; do before=$address; address=$last; last=$word; done
case $address in
gpu002) echo '{"schema": "unhang/node-facts/1", "collector"'; exit 0 ;;
gpu003) echo "ssh: connect to host gpu003 port 22: Connection timed out" >&2; exit 255 ;;
gpu004) head -c 5000000 /dev/zero | tr '\\0' x; exec sleep 100 ;;
gpu005) echo "sudo: a password is required" >&2; exit 1 ;;
gpu006) exec sleep 100 ;;
esac
echo "A banner of the site"
echo '{"schema": "unhang/node-facts/1", "collector": {"version": "0.1.0"}, "sections": {"node": {"probe": {"status": "ok"}, "hostname": "'$address'"}}}'
"""


@pytest.fixture
def unhang(fleet):
    """Runs a command of unhang among the hosts of the fleet: a finished process."""
    ssh = fleet.folder / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    for host in HOSTS:
        fleet.hosts[host] = {"ansible_ssh_executable": str(ssh)}
    fleet.hosts["gpu006"]["unhang_node_timeout_s"] = 2
    fleet.groups["training"] = HOSTS

    def do(*arguments):
        environment = fleet.environment()
        del environment["UNHANG_JUDGE"]
        return run([sys.executable, "-m", "unhang", *arguments], environment, fleet.folder)

    return do


def test_each_node_has_its_own_outcome_and_the_rest_are_read(fleet, unhang):
    done = unhang(
        *as_typed(
            "unhang audit --via clush -i inventory/mycluster",
            {"inventory/mycluster": fleet.inventory},
        )[1:]
    )
    nodes = fleet.nodes()
    assert f"unhang: {len(HOSTS)} hosts by ssh, 64 at a time (as asked)" in done.stderr
    unread = {
        "gpu002": "invalid",
        "gpu003": "unreachable",
        "gpu004": "invalid",
        "gpu005": "failed",
        "gpu006": "timeout",
    }
    assert {host: node["status"] for host, node in nodes.items()} == {
        **dict.fromkeys(HOSTS, "ok"),
        **unread,
    }
    assert (
        nodes["gpu003"]["message"]
        == "Failed to connect to the host via ssh: ssh: connect to host gpu003 port 22: Connection"
        " timed out"
    )
    assert "more than 4194304" in nodes["gpu004"]["message"]
    assert (
        nodes["gpu005"]["message"]
        == "the collector ended without an answer: sudo: a password is required"
    )
    assert nodes["gpu006"]["message"] == "no answer within 2 s"
    assert {
        node["facts"]["sections"]["node"]["hostname"] for node in nodes.values() if node["facts"]
    } == {*HOSTS} - {*unread}
    assert nodes["gpu001"]["groups"] == ["training"]


def test_auto_takes_clush_for_many_plain_hosts_and_ansible_for_few_or_others(fleet, unhang):
    for host in HOSTS[1:6]:
        del fleet.hosts[host]
    fleet.hosts |= {f"more{number}": {**fleet.hosts["gpu001"]} for number in range(5)}
    fleet.groups["training"] = list(fleet.hosts)
    many = unhang("audit", "-i", fleet.inventory)
    assert "unhang: 65 hosts by ssh, 64 at a time (plain ssh, more than 64 hosts)" in many.stderr
    assert {node["status"] for node in fleet.nodes().values()} == {"ok"}
    fleet.hosts, fleet.groups = {}, {}
    fleet.answering("gpu001", '{"changed": false, "failed": true, "msg": "planned"}')
    few = unhang("audit", "-i", fleet.inventory)
    assert few.stderr == "unhang: no node was read\n"
    assert fleet.nodes()["gpu001"]["message"] == "planned"
    runs = sorted(fleet.runs.iterdir()), (fleet.runs / "latest").resolve()
    refused = unhang("audit", "--via", "clush", "-i", fleet.inventory)
    assert refused.returncode == 2
    assert (sorted(fleet.runs.iterdir()), (fleet.runs / "latest").resolve()) == runs
    line = (
        "unhang: --via clush reads only hosts that ssh alone reaches, not those that need"
        " the connection 'local' for gpu001; use --via ansible"
    )
    assert refused.stderr.splitlines()[-1] == line


def test_auto_takes_ansible_where_ssh_alone_does_not_reach_many_hosts(fleet, unhang):
    fleet.hosts = {}
    for host in HOSTS:
        fleet.answering(host, '{"changed": false, "failed": true, "msg": "planned"}')
    fleet.groups = {}
    done = unhang("audit", "-i", fleet.inventory)
    assert (
        "unhang: Ansible reads the nodes, not ssh alone: the connection 'local' for gpu[001-065]"
        in done.stderr
    )
    assert {node["message"] for node in fleet.nodes().values()} == {"planned"}
    assert len(list(fleet.runs.glob("2*"))) == 1
