"""A host in two groups with a policy each: what is refused before any node is read, and which
message the playbooks print."""

from __future__ import annotations

import pytest
import yaml
from local_fleet import PROJECT, envelope, read

from unhang.core.ansible.group_policies import GroupPolicy, rivals_of


@pytest.fixture
def grouped(fleet):
    """play(groups, playbook): runs it on gpu001 in this tree of groups, {name: {vars, children,
    hosts}}."""
    fleet.answering("gpu001", envelope())

    def play(groups, playbook="audit", host_variables=None, *arguments):
        inventory = {
            "all": {
                "hosts": {"gpu001": {**fleet.hosts["gpu001"], **(host_variables or {})}},
                "children": groups,
            }
        }
        path = fleet.folder / "grouped.yml"
        path.write_text(yaml.safe_dump(inventory))
        return fleet.play(
            "-i", path, *arguments, playbook=PROJECT / "playbooks" / f"{playbook}.yml"
        )

    play.fleet = fleet
    return play


def group(driver=None, priority=None, **more):
    """A group that sets a policy."""
    given = {"unhang_policy": {"driver": {"version": driver}}} if driver else {}
    return {"vars": {**given, **({"ansible_group_priority": priority} if priority else {})}, **more}


HERE = {"hosts": {"gpu001": {}}}
TWO = {"h200": group("570.172.08", **HERE), "training": group("580.65.06", **HERE)}


@pytest.mark.parametrize("playbook", ["audit", "remediate", "rollback", "preprovision"])
def test_two_unrelated_groups_that_both_give_a_policy_are_refused_by_name(grouped, playbook):
    played = grouped(TWO, playbook)
    assert played.returncode == 2
    output = " ".join(played.stderr.split())
    assert (
        "no one group gives gpu001 unhang_policy: h200 and training do at one level, neither of them a child of the other"
        in output
    )
    assert not grouped.fleet.runs.exists(), "nothing is asked of a node, and no run is begun"


def test_group_vars_beside_the_inventory_count_too(grouped):
    folder = grouped.fleet.folder / "group_vars"
    folder.mkdir()
    (folder / "h200.yml").write_text("unhang_policy: {driver: {version: 570.172.08}}\n")
    played = grouped({"h200": HERE, "training": TWO["training"]})
    assert played.returncode == 2
    assert "h200 and training do at one level" in played.stderr


def test_a_child_replaces_its_parent_and_the_preview_says_so(grouped):
    played = grouped(
        {"gpu": group("570.172.08", children={"h200": group("580.65.06", **HERE)})}, "remediate"
    )
    output = " ".join(played.stderr.split())
    assert (
        "unhang_policy of group h200 replaces that of gpu whole for gpu001, as Ansible has it"
        in output
    )
    assert read(grouped.fleet.runs / "latest" / "nodes" / "gpu001.json")["policy"] == {
        "driver": {"version": "580.65.06"}
    }


def test_what_somebody_has_decided_is_not_refused(fleet):
    """A host's own policy, a priority, equal policies, and a child of both groups: each decides for
    a host of its own."""
    for host in ("own", "first", "equal", "child"):
        fleet.answering(host, envelope())
    fleet.hosts["own"]["unhang_policy"] = {"driver": {"version": "575.57.08"}}
    of_both = {"c": group("1.1", hosts={"child": {}})}
    groups = {
        "own_a": group("570.172.08", hosts={"own": {}}),
        "own_b": group("580.65.06", hosts={"own": {}}),
        "first_a": group("570.172.08", priority=10, hosts={"first": {}}),
        "first_b": group("580.65.06", hosts={"first": {}}),
        "equal_a": group("580.65.06", hosts={"equal": {}}),
        "equal_b": group("580.65.06", hosts={"equal": {}}),
        "a": group("570.172.08", children=of_both), "b": group("580.65.06", children={"c": {}}),
    }  # fmt: skip
    (fleet.folder / "grouped.yml").write_text(
        yaml.safe_dump({"all": {"hosts": fleet.hosts, "children": groups}})
    )
    played = fleet.play("-i", fleet.folder / "grouped.yml")
    assert played.returncode == 0, played.stderr
    counts = {"own": "575.57.08", "first": "570.172.08", "equal": "580.65.06", "child": "1.1"}
    assert {host: node["policy"] for host, node in fleet.nodes().items()} == {
        host: {"driver": {"version": version}} for host, version in counts.items()
    }


def test_what_the_command_line_gives_counts_for_all_groups(grouped):
    played = grouped(
        TWO, "audit", None, "-e", '{"unhang_policy": {"driver": {"version": "575.57.08"}}}'
    )
    assert played.returncode == 0, played.stderr


def test_a_group_that_stands_in_two_places_is_no_rival_of_itself():
    rows = [GroupPolicy("gpu", 1, 1, {"a": 1}), GroupPolicy("gpu", 1, 1, {"a": 2})]
    assert rivals_of(rows) == []
