"""What a plan does once for nodes that are alike changes nothing: each node of a random fleet is
planned as if it were alone."""

from __future__ import annotations

import copy
import hashlib
import json
import random

import five_situations
import pytest

from unhang.act.plan.host_plan import plan_for_host
from unhang.act.plan.plan_document import digest_of
from unhang.act.plan.role_coverage import remedying_of
from unhang.core.run.documents import NodeDocument, to_fragment
from unhang.core.run.findings import hosts_of
from unhang.judge.rules.compiled_catalogue import load_catalogue

CATALOGUE = load_catalogue()
DAY = "2026-11-20"
CHANGES = (
    lambda sections, dice: sections["driver"]["loaded"].update(
        version=dice.choice(("545.23.08", "580.95.05"))
    ),
    lambda sections, dice: sections["kernel"].update(
        release=dice.choice(("5.4.0-172-generic", "6.8.0-57-generic"))
    ),
    lambda sections, dice: sections["driver"].update(
        install_method=dice.choice(("packages", "runfile", "container"))
    ),
    lambda sections, dice: sections["node"].update(
        image={"kind": dice.choice(("installed", "diskless"))}
    ),
    lambda sections, dice: sections["node"].update(boot_id=f"boot-{dice.random()}"),
    lambda sections, dice: sections["gpus"]["devices"].reverse(),
    lambda sections, dice: sections["nccl"].update(libraries=[]),
)
POLICIES = (
    {},
    {"driver": {"version": "580.95.05"}},
    {"driver": {"version": "545.23.08"}},
    {"kernel": {"version": "5.4.0-172-generic"}},
)


def random_fleet(seed):
    """[(node, its findings)]: copies of the five situations' nodes, some of them with another fact
    or policy, in any order."""
    dice = random.Random(seed)
    findings, nodes = five_situations.fleet()
    about = {
        node["host"]: [
            one
            for one in findings["findings"]
            if one["verdict"] == "fail" and node["host"] in hosts_of(one)
        ]
        for node in nodes
    }
    read = [node for node in nodes if node["status"] == "ok" and about[node["host"]]]
    fleet = []
    for number in range(40):
        node = dice.choice(read)
        sections = copy.deepcopy(node["facts"]["sections"])
        for change in dice.sample(CHANGES, dice.randint(0, 2)):
            try:
                change(sections, dice)
            except (KeyError, AttributeError):
                continue  # that node has no such section
        policy = copy.deepcopy(dice.choice((node["policy"], *POLICIES)))
        fleet.append(
            (
                NodeDocument(
                    f"gpu{number:03d}",
                    tuple(node["groups"]),
                    policy,
                    "ok",
                    None,
                    to_fragment(sections),
                ),
                about[node["host"]],
            )
        )
    return fleet


@pytest.mark.parametrize("seed", range(3))
def test_each_node_is_planned_as_if_it_were_alone(seed):
    shared = remedying_of(CATALOGUE, DAY)
    fleet = random_fleet(seed)
    together = [plan_for_host(node, findings, shared) for node, findings in fleet]
    alone = [
        plan_for_host(node, findings, remedying_of(CATALOGUE, DAY)) for node, findings in fleet
    ]
    assert together == alone
    assert len({one.config_hash for one in alone}) > 3
    assert {bool(one.remedies) for one in alone} == {True, False}


def test_nodes_that_differ_in_where_a_fault_is_are_not_planned_as_one():
    remedy = {"role": "nccl_profile", "policy": {"nccl": {"min": "2.26.5"}}}
    finding = {
        "rule": "nccl-a",
        "severity": "error",
        "scope": "node",
        "verdict": "fail",
        "remedy": remedy,
    }
    node, _ = random_fleet(1)[0]
    places = [
        None,
        {},
        {"path": "/opt/a/libnccl.so.2"},
        {"path": "/opt/b/libnccl.so.2"},
        {"path": "/opt/a/libnccl.so.2", "value": "2.18"},
    ]
    fleet = [(node, [{**finding, "where": where}]) for where in places]
    shared = remedying_of(CATALOGUE, DAY)
    plans = [plan_for_host(*one, shared) for one in fleet]
    assert plans == [plan_for_host(*one, remedying_of(CATALOGUE, DAY)) for one in fleet]
    assert plans[0] == plans[1] and plans[2] == plans[4]
    assert "/opt/a/" in plans[2].person[0].what and "/opt/b/" in plans[3].person[0].what


@pytest.mark.parametrize(
    "policy",
    [
        {"a": [1, 2.5, 0.0, -3, True, None], "é": "ü", "b": {"z": 1, "y": {"x": []}}},
        {"text": 'quote " back \\ slash / \b \f \n \r \t \x01 \x1f \x7f'},
        {"text": "plain", "nested": [{"b": 1, "a": 0.1}, {}]},
        {"number": 10**40},
        {"half": "\ud800"},
    ],
)
def test_the_digest_of_a_plan_is_that_of_its_sorted_ascii_json(policy):
    document = {"schema": "unhang/plan/1", "digest": "is not counted", "hosts": [policy]}
    content = {key: value for key, value in document.items() if key != "digest"}
    assert (
        digest_of(document)
        == hashlib.sha256(
            json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()
    )
