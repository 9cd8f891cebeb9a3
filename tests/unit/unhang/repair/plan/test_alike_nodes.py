"""What a plan does once for nodes that are alike changes nothing: each node of a random fleet is planned as if it were alone."""

from __future__ import annotations

import copy
import hashlib
import json
import random

import five_situations
import pytest
from healthy_nodes import HEALTHY

from unhang.audit.judge.compiled_catalogue import load_catalogue
from unhang.audit.judge.documents import NodeDocument, Remembered, decode_node, part_names, to_fragment
from unhang.repair.plan.host_plan import plan_for_host, plan_for_hosts
from unhang.repair.plan.plan_document import digest_of
from unhang.repair.plan.planning import knowledge_of
from unhang.schemas.configuration import hash_of_sections
from unhang.schemas.part_hashes import PartHashes
from unhang.show.report.folding import hosts_of

CATALOGUE = load_catalogue()
DAY = "2026-11-20"
CHANGES = (
    lambda sections, dice: sections["driver"]["loaded"].update(version=dice.choice(("545.23.08", "580.95.05"))),
    lambda sections, dice: sections["kernel"].update(release=dice.choice(("5.4.0-172-generic", "6.8.0-57-generic"))),
    lambda sections, dice: sections["driver"].update(install_method=dice.choice(("packages", "runfile", "container"))),
    lambda sections, dice: sections["node"].update(image={"kind": dice.choice(("installed", "diskless"))}),
    lambda sections, dice: sections["node"].update(boot_id=f"boot-{dice.random()}"),
    lambda sections, dice: sections["gpus"]["devices"].reverse(),
    lambda sections, dice: sections["nccl"].update(libraries=[]),
)
POLICIES = ({}, {"driver": {"version": "580.95.05"}}, {"driver": {"version": "545.23.08"}}, {"kernel": {"version": "5.4.0-172-generic"}})


def random_fleet(seed):
    """[(node, its findings)]: copies of the five situations' nodes, some of them with another fact or policy, in any order."""
    dice = random.Random(seed)
    findings, nodes = five_situations.fleet()
    about = {node["host"]: [one for one in findings["findings"] if one["verdict"] == "fail" and node["host"] in hosts_of(one)] for node in nodes}
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
        fleet.append((NodeDocument(f"gpu{number:03d}", tuple(node["groups"]), policy, "ok", None, to_fragment(sections)), about[node["host"]]))
    return fleet


@pytest.mark.parametrize("seed", range(3))
def test_each_node_is_planned_as_if_it_were_alone(seed):
    shared = knowledge_of(CATALOGUE, DAY)
    fleet = random_fleet(seed)
    together = [plan_for_host(node, findings, shared) for node, findings in fleet]
    alone = [plan_for_host(node, findings, knowledge_of(CATALOGUE, DAY)) for node, findings in fleet]
    assert together == alone == plan_for_hosts(fleet, knowledge_of(CATALOGUE, DAY))
    assert len({one.config_hash for one in alone}) > 3
    assert {bool(one.remedies) for one in alone} == {True, False}


def read_fleet(seed, count=40):
    """[(node, as it was read from its file, which tells the bytes of its parts)]: complete nodes of six kinds, each with a boot of its own."""
    dice, remembered = random.Random(seed), Remembered()
    for number in range(count):
        facts = dice.choice(list(HEALTHY.values()))()
        facts["sections"]["node"]["boot_id"] = f"boot-{number}"
        if facts["sections"]["driver"]["loaded"]["is_loaded"]:
            CHANGES[0](facts["sections"], dice)
        node = {"schema": "unhang/node/1", "host": f"gpu{number:03d}", "groups": [], "policy": POLICIES[1], "status": "ok", "message": None, "facts": facts}
        text = json.dumps(node, separators=(",", ":")).encode()
        yield decode_node(text), decode_node(text, remembered)


@pytest.mark.parametrize("seed", range(3))
def test_a_hash_is_the_same_whatever_other_nodes_were_hashed_before(seed):
    shared, met, again = PartHashes(part_names()), set(), 0
    for _alone, node in read_fleet(seed):
        assert shared.hash_of(node.sections, node.seen) == shared.hash_of(node.sections) == hash_of_sections(node.sections)
        again += sum(data in met for data in node.seen)
        met |= {data for data in node.seen if data is not None}
    assert again > 100


def test_what_is_planned_of_a_node_does_not_depend_on_which_parts_of_it_were_known():
    _, findings = next(one for one in random_fleet(1) if one[1])
    known, unknown = knowledge_of(CATALOGUE, DAY), knowledge_of(CATALOGUE, DAY)
    pairs = [(plan_for_host(alone, findings, unknown), plan_for_host(node, findings, known)) for alone, node in read_fleet(1)]
    assert [one for one, _ in pairs] == [other for _, other in pairs]
    assert len({one.config_hash for one, _ in pairs}) > 5
    # Nodes that differ in nothing that is planned are planned once: six kinds, two versions of the driver.
    assert len(known.planned_before) <= 12


def test_nodes_that_differ_in_where_a_fault_is_are_not_planned_as_one():
    remedy = {"role": "nccl_profile", "policy": {"nccl": {"min": "2.26.5"}}}
    finding = {"rule": "nccl-a", "severity": "error", "scope": "node", "verdict": "fail", "remedy": remedy}
    node, _ = random_fleet(1)[0]
    places = [None, {}, {"path": "/opt/a/libnccl.so.2"}, {"path": "/opt/b/libnccl.so.2"}, {"path": "/opt/a/libnccl.so.2", "value": "2.18"}]
    fleet = [(node, [{**finding, "where": where}]) for where in places]
    shared = knowledge_of(CATALOGUE, DAY)
    plans = [plan_for_host(*one, shared) for one in fleet]
    assert plans == [plan_for_host(*one, knowledge_of(CATALOGUE, DAY)) for one in fleet]
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
    assert digest_of(document) == hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
