"""Slurm's nodes in an inventory: groups, variables, unsuitable names, and text of users that looks
like a node."""

from __future__ import annotations

import json
import re

import pytest
from hostile import TEXTS

from unhang.core.ansible.slurm_inventory import (
    group_names,
    inventory_of,
    parse_gres,
    parse_topology,
    read_slurm,
)
from unhang.core.errors import UserError
from unhang_node.base.parse.slurm import parse_nodes

# As Slurm 22.05.8 prints them.
TOPOLOGY = """SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu[001-002]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gpu[003-004],cpu01
SwitchName=spine Level=1 LinkSpeed=1 Nodes=cpu01,gpu[001-004] Switches=leaf[1-2]
"""


def node(
    name="gpu001",
    state="IDLE",
    features="h200,ib",
    gres="gpu:h200:8(S:0-1)",
    partitions="all,train",
    address="10.0.0.1",
    end="",
):
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUTot=2"
        f" AvailableFeatures=x,{features} ActiveFeatures={features} Gres={gres} NodeAddr={address}"
        " NodeHostName=vm Port=7001 Version=22.05.8 OS=Linux 6.1.0 #1 SMP  RealMemory=1 Sockets=2"
        f" Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A"
        f" Partitions={partitions}  BootTime=None CfgTRES=cpu=2,mem=1M,billing=2{end}\n"
    )


def test_groups_and_variables_of_nodes_with_a_topology():
    text = (
        node()
        + node("gpu003", "IDLE+DRAIN", end=" Reason=bad DIMM [alice@2026-11-20T20:21:55]")
        + node("cpu01", features="(null)", gres="(null)", address="cpu01")
    )
    found = inventory_of(parse_nodes(text), TOPOLOGY)
    assert found.groups == {
        "slurm": ["gpu001", "gpu003", "cpu01"],
        "slurm_partition_all": ["gpu001", "gpu003", "cpu01"],
        "slurm_partition_train": ["gpu001", "gpu003", "cpu01"],
        "slurm_feature_h200": ["gpu001", "gpu003"],
        "slurm_feature_ib": ["gpu001", "gpu003"],
        "slurm_gres_gpu": ["gpu001", "gpu003"],
        "slurm_gres_gpu_h200": ["gpu001", "gpu003"],
        "slurm_switch_leaf1": ["gpu001"],
        "slurm_switch_leaf2": ["gpu003", "cpu01"],
    }
    assert found.children == {"slurm_switch_spine": ["slurm_switch_leaf1", "slurm_switch_leaf2"]}
    assert found.hosts["gpu003"] == {
        "slurm_state": ["DRAIN", "IDLE"],
        "slurm_reason": "bad DIMM",
        "slurm_reason_by": "alice",
        "slurm_partitions": ["all", "train"],
        "slurm_features": ["h200", "ib"],
        "slurm_gres": [{"name": "gpu", "type": "h200", "count": "8"}],
        "ansible_host": "10.0.0.1",
        "unhang_switch": "leaf2",
    }
    assert "ansible_host" not in found.hosts["cpu01"]


def test_slurm_without_a_topology_and_machines_that_do_not_exist_yet():
    found = inventory_of(parse_nodes(node() + node("gpu002", "FUTURE")), "")
    assert list(found.hosts) == ["gpu001"]
    assert found.children == {}
    assert "unhang_switch" not in found.hosts["gpu001"]


@pytest.mark.parametrize(
    "name",
    ["-x", "a[1", "a:b", "a,b", "!a", "&a", "~a", "a*", "all", "ungrouped", "é", "a/b", "{{x}}"],
)
def test_a_name_that_ansible_or_a_node_set_takes_for_something_else_is_refused_in_one_line(name):
    with pytest.raises(UserError, match="node names in Slurm consist of letters") as refused:
        inventory_of(parse_nodes(node() + node(name)), "")
    assert "\n" not in str(refused.value)


def test_a_node_that_is_there_twice_and_text_that_is_no_node_are_refused():
    with pytest.raises(UserError, match="more than once: gpu001"):
        inventory_of(parse_nodes(node() + node()), "")
    with pytest.raises(
        UserError, match="Slurm's nodes cannot be read: a node must begin with NodeName="
    ):
        read_slurm(["sh", "-c", "echo slurm_load_node error", "/usr/bin/scontrol"], 60)
    with pytest.raises(UserError, match="hosts, more than"):
        inventory_of(
            parse_nodes(node()), "SwitchName=s Level=0 LinkSpeed=1 Nodes=gpu[0-999999999]\n"
        )


def test_group_names_are_safe_and_two_never_become_one():
    names = group_names(
        [
            (),
            ("partition", "a-b"),
            ("partition", "a.b"),
            ("partition", "ab"),
            ("gres", "gpu", "x"),
            ("gres", "gpu_x"),
            ("feature", "é{{"),
        ],
        "slurm",
    )
    assert names[()] == "slurm"
    assert names["partition", "ab"] == "slurm_partition_ab"
    assert names["gres", "gpu", "x"] == "slurm_gres_gpu_x"
    assert len(set(names.values())) == len(names)
    assert all(name.isidentifier() and name.isascii() for name in names.values())
    assert names["partition", "a-b"].startswith("slurm_partition_a_b_")


def test_gres_as_slurm_writes_them():
    assert parse_gres("gpu:h200:8(S:0,1),nic:mlx5:no_consume:2,shard:16,license") == [
        {"name": "gpu", "type": "h200", "count": "8"},
        {"name": "nic", "type": "mlx5", "count": "2"},
        {"name": "shard", "type": "", "count": "16"},
        {"name": "license", "type": "", "count": "1"},
    ]
    assert parse_gres("") == []


def test_a_switch_that_names_itself_or_one_that_is_not_there_is_no_parent_of_it():
    found = parse_topology(
        "SwitchName=a Level=1 Nodes=x Switches=a,b,c\nSwitchName=b Level=0"
        " Nodes=gpu001\nBlockName=k BlockIndex=0 Nodes=gpu002\nrubbish\n"
    )
    assert found["a"].switches == ("b",)
    assert (found["b"].nodes, found["k"].nodes) == ("gpu001", "gpu002")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["/nowhere/scontrol"], "/nowhere/scontrol of Slurm is not on this machine"),
        (["sh", "-c", "echo 'a\nno cluster' >&2; exit 1"], "sh failed: no cluster; next: "),
        (["sh", "-c", "sleep 100"], "within 0.5 s: is slurmctld running"),
    ],
)
def test_a_scontrol_that_does_not_answer_is_reported_in_a_line(command, message):
    with pytest.raises(UserError, match=message) as refused:
        read_slurm(command, 0.5 if "sleep" in command[-1] else 60)
    assert "\n" not in str(refused.value)


FORGED = " Reason=a long story\n" + node("evil01", address="203.0.113.9")
PROGRAM = """#!/bin/sh
case "$*" in
  --help) {help};;
  "--json show nodes") cat {folder}/nodes.json;;
  "-o show nodes") cat {folder}/nodes;;
  "-o show topology") ;;
  "-o show node alone") cat {folder}/alone;;
  "-o show node evil01") echo "Node evil01 not found" >&2; exit 1;;
  *--format=%N) cat {folder}/names;;
esac
"""


@pytest.fixture
def slurm(tmp_path):
    """A folder with scontrol and sinfo, which print the folder's files."""

    def installed(nodes, names, document=None, alone=""):
        for name, content in (
            ("nodes", nodes),
            ("names", names),
            ("alone", alone),
            ("nodes.json", json.dumps(document)),
        ):
            (tmp_path / name).write_text(content)
        for name in ("scontrol", "sinfo"):
            (tmp_path / name).write_text(
                PROGRAM.format(folder=tmp_path, help="echo --json" if document else "true")
            )
            (tmp_path / name).chmod(0o755)
        return [str(tmp_path / "scontrol")]

    return installed


def test_a_reason_with_a_line_break_adds_no_host(slurm):
    """A health check writes what a node printed as the reason: a line of it chose the address of a
    host of its own."""
    with pytest.raises(
        UserError, match="not know the node evil01, which only a text of a node claims"
    ):
        read_slurm(slurm(node(end=FORGED), "gpu001\ngpu001\n"), 60)


def test_a_reason_with_a_line_break_takes_no_address_of_another_host(slurm):
    forged = " Reason=x\n" + node("gpu002", address="203.0.113.9")
    nodes, topology = read_slurm(
        slurm(node(end=forged) + node("gpu002", address="10.0.0.2"), "gpu001\ngpu002\n"), 60
    )
    with pytest.raises(UserError, match="more than once: gpu002"):
        inventory_of(nodes, topology)


def test_a_node_of_no_partition_is_a_host(slurm):
    nodes, topology = read_slurm(slurm(node() + node("alone"), "gpu001\n", alone=node("alone")), 60)
    assert list(inventory_of(nodes, topology).hosts) == ["gpu001", "alone"]


def test_json_says_what_is_text(slurm):
    rows = [
        {
            "name": "gpu001",
            "state": ["IDLE", "DRAIN"],
            "reason": f"x {FORGED}",
            "address": "10.0.0.1",
            "partitions": ["train"],
        }
    ]
    nodes, topology = read_slurm(slurm("", "", {"nodes": rows}), 60)
    found = inventory_of(nodes, topology)
    assert list(found.hosts) == ["gpu001"]
    assert found.hosts["gpu001"]["ansible_host"] == "10.0.0.1"


def test_an_address_is_a_name_or_a_number_and_no_option_of_ssh(slurm):
    for address in (
        "-oProxyCommand=touch /tmp/x",
        "{{ lookup('pipe', 'id') }}",
        "a b",
        "a\nb",
        "$(id)",
    ):
        rows = [{"name": "gpu001", "state": ["IDLE"], "address": address}]
        found = inventory_of(*read_slurm(slurm("", "", {"nodes": rows}), 60))
        assert "ansible_host" not in found.hosts["gpu001"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [text for text in TEXTS.values() if len(text) < 10_000]
    + ["-oProxyCommand=id", "ansible_host", "x=y,{{ lookup('pipe', 'id') }}"],
)
@pytest.mark.parametrize(
    "place",
    [
        "reason",
        "reason_set_by_user",
        "address",
        "hostname",
        "partitions",
        "active_features",
        "gres",
        "comment",
        "extra",
    ],
)
def test_whatever_stands_in_a_node_it_is_a_value_of_that_node_and_no_setting_of_ansible(
    slurm, place, text
):
    row = {"name": "gpu001", "state": ["IDLE"], "address": "10.0.0.1", "partitions": ["train"]}
    found = inventory_of(
        *read_slurm(
            slurm("", "", {"nodes": [row | {place: [text] if place == "partitions" else text}]}), 60
        )
    )
    assert list(found.hosts) == ["gpu001"]
    assert {name for name in found.hosts["gpu001"] if not name.startswith("slurm_")} <= {
        "ansible_host"
    }
    assert re.fullmatch(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]*", found.hosts["gpu001"].get("ansible_host", "none")
    )
    assert all(name.isidentifier() and name.isascii() for name in found.groups)
