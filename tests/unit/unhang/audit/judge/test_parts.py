"""Parts that are cached from one node's document never change the facts of another node."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from damaged_nodes import recorded_nodes
from judge_cases import OK, node, rule, sections, write_rules, write_run

from unhang.audit.judge import parts
from unhang.audit.judge.compiled_catalogue import load_catalogue
from unhang.audit.judge.documents import InvalidNode, Remembered, decode_node, part_names
from unhang.audit.judge.judging import judge_run
from unhang.audit.judge.run_input import read_run_input
from unhang.schemas.shapes import fact_shapes

TODAY = "2026-06-01"


def compact(document: Any) -> bytes:
    """As a run folder has it."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decoded(data: bytes, remembered: Remembered | None) -> Any:
    """(host, sections), or why there are none."""
    try:
        found = decode_node(data, remembered)
    except InvalidNode as problem:
        return str(problem)
    return found.host, found.sections


def test_alike_parts_of_two_nodes_are_decoded_once():
    remembered = Remembered()
    first, second = (decode_node(compact({**node(host), "facts": recorded_nodes()[1]}), remembered) for host in ("a1", "b1"))
    assert first.sections.interconnect.links is second.sections.interconnect.links
    assert all(one is other for one, other in zip(first.seen, second.seen, strict=True))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"gpus":{', '"gpus":5,"gpus":{'),
        lambda text: text.replace('"gpus":{', '"gp\\u0075s":{'),
        lambda text: text.replace('"gpus":{', '"gpus" : {'),
        lambda text: text.replace('"interconnect":{', '"interconnect":{"links":[],"links":5,'),
        lambda text: text.replace('"interconnect":{', '"interconnect":{"pairs":[{"a":0}],'),
        lambda text: text.replace('"kernel":{', '"kernel":null,"kernel":{'),
        lambda text: text[:-3] + "}}}}\n",
        lambda text: text.replace('"driver":{', '"driver":{"probe":{"status":"ok"},'),
        lambda text: text.replace("NVIDIA H200", "\\ud800"),
    ],
)
def test_what_is_written_in_another_way_is_read_as_without_a_memory(change):
    remembered = Remembered()
    text = compact({**node("a1"), "facts": recorded_nodes()[1]}).decode()
    decoded(text.encode(), remembered)
    changed = change(text)
    assert changed != text
    assert decoded(changed.encode(), remembered) == decoded(changed.encode(), None)


def test_a_section_keeps_the_time_that_reading_it_took_on_its_own_node():
    remembered = Remembered()
    for duration in (1.5, 2, 0.25):
        facts = copy.deepcopy(recorded_nodes()[1])
        facts["sections"]["driver"]["probe"]["duration_ms"] = facts["sections"]["interconnect"]["probe"]["duration_ms"] = duration
        found = decode_node(compact({**node("a1"), "facts": facts}), remembered)
        assert (found.sections.driver.probe.duration_ms, found.sections.interconnect.probe.duration_ms) == (duration, duration)


def test_parts_that_are_always_new_are_not_kept():
    remembered = Remembered()
    for number in range(3 * parts.TRIED):
        document = node(f"n{number}", {**sections(), "node": {"probe": OK, "hostname": f"n{number}"}})
        decode_node(compact(document), remembered)
    seen = dict(zip(part_names(), decode_node(compact(document), remembered).seen, strict=True))
    assert (seen["node",], seen["gpus",] is None) == (None, False)


def test_a_part_keeps_so_many_bytes_and_no_more(monkeypatch):
    monkeypatch.setattr(parts, "MOST_BYTES", 1000)
    found = parts._Seen(json.loads)
    for number in range(10_000):
        found.of(json.dumps({"a": number // 3, "b": "x" * 50}).encode())
        assert found.size == sum(map(len, found.known)) <= 1000
        assert len(found.last[0]) <= 1000


def test_items_of_sections_that_fall_into_parts_have_no_names_of_their_own():
    """The reason for a null, by an item's name, is in one part, and the names are in another."""
    for name in parts.PARTED:
        assert not [field for field, shape in fact_shapes()[name].fields.items() if shape.item is not None and "path" in shape.item.fields]


def totals(folder, rules, *nodes):
    run = write_run(folder, *nodes)
    judge_run(read_run_input(run), rules, TODAY)
    return json.loads((run / "findings.json").read_text())["totals"]


def test_how_many_items_pass_is_counted_for_each_node(tmp_path):
    rules = load_catalogue([write_rules(tmp_path / "rules", rule("item.power_draw_w > 5000", for_each="gpus.devices", id="own"))], built_in=False)
    nodes = []
    for number, devices in enumerate((2, 4, 2, 0, 4, 1)):
        facts = {"gpus": {"probe": OK, "count": 8, "devices": [{"index": one, "power_draw_w": 70.0 + number} for one in range(devices)]}}
        nodes.append(node(f"n{number}", facts))
    assert totals(tmp_path / "run", rules, *nodes) == {"fail": 0, "pass": 13, "unknown": 0, "skip": 1, "waived": 0}


def test_a_null_item_of_one_node_is_unknown_whatever_the_others_have(tmp_path):
    rules = load_catalogue([write_rules(tmp_path / "rules", rule("node.uptime_s > 5000", for_each="gpus.devices", id="own"))], built_in=False)
    nodes = [
        node(f"n{number}", {"node": {"probe": OK, "uptime_s": 10.0 + number}, "gpus": {"probe": OK, "devices": [{"index": 0}, second]}})
        for number, second in enumerate(({"index": 1}, None, {"index": 1}))
    ]
    alone = [totals(tmp_path / f"alone{number}", rules, one) for number, one in enumerate(nodes)]
    assert totals(tmp_path / "run", rules, *nodes) == {key: sum(one[key] for one in alone) for key in alone[0]}


def test_a_reason_that_names_an_item_is_another_nodes_other_item(tmp_path):
    """Both say of /opt/a that it has no Python; on one node that is the only environment, on the other /opt/b is."""
    rules = load_catalogue([write_rules(tmp_path / "rules", rule("item.python == '3.9'", for_each="torch.environments", id="own"))], built_in=False)
    unread = {"status": "ok", "unread": [{"field": "environments[/opt/a].python", "status": "absent", "reason": "why"}]}
    facts = [{"torch": {"probe": unread, "environments": [{"path": f"/opt/{path}"}]}} for path in ("a", "b", "a")]
    nodes = [node(f"n{number}", one) for number, one in enumerate(facts)]
    found = totals(tmp_path / "run", rules, *nodes)
    assert (found["skip"], found["unknown"]) == (2, 1)


def test_no_list_is_something_else_than_an_item_with_nothing_in_it(tmp_path):
    """The first node's libraries were not read; the second node's library was read, and has no version."""
    of_libraries = "nccl.libraries | selectattr('version', 'equalto', item.value) | selectattr('cuda', 'equalto', '12') | list | length > 0"
    row = rule(of_libraries, applies="nccl.libraries | list | length > 0", for_each="nccl.settings")
    rules = load_catalogue([write_rules(tmp_path / "rules", row)], built_in=False)
    facts = [{"nccl": {"probe": OK, "settings": [], **more}} for more in ({}, {"libraries": [{"path": "/a", "version": None, "cuda": None}]}, {})]
    alone = [totals(tmp_path / f"alone{number}", rules, node("n", one)) for number, one in enumerate(facts)]
    together = totals(tmp_path / "run", rules, *(node(f"n{number}", one) for number, one in enumerate(facts)))
    assert together == {key: sum(one[key] for one in alone) for key in together}
    assert alone[0] != alone[1]


SPELT = (10_000_000_000, 1e10, 0, 0.0, -0.0, 2**60, 2.0**60, 79.5)


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ("item.memory_total_mib >= 0", "{{ item.memory_total_mib }}"),  # what a node is configured as
        ("item.power_draw_w is known", "{{ item.power_draw_w }}"),  # what is measured
        ("(item.memory_total_mib ~ '') == '10000000000'", "so"),
        ("(item.power_draw_w ~ '') == '10000000000'", "so"),
        ("item.index == 0", "{{ item.memory_total_mib }} {{ item.power_draw_w }}"),  # what is shown alone
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_numbers_that_are_equal_and_written_in_two_ways_are_each_nodes_own(tmp_path, when, found, order):
    rules = load_catalogue([write_rules(tmp_path / "rules", rule(when, for_each="gpus.devices", id="own", found=found))], built_in=False)
    assert not rules.faults
    nodes = [
        node(f"n{place}", {"gpus": {"probe": OK, "count": 1, "devices": [{"index": 0, "memory_total_mib": one, "power_draw_w": one}]}})
        for place, one in enumerate(SPELT)
    ][::order]
    assert_as_if_alone(tmp_path, rules, nodes)


def test_policies_that_are_equal_and_written_in_two_ways_are_each_nodes_own(tmp_path):
    rows = [
        rule("policy.nccl.settings.NCCL_X is known", id="whole", found="{{ policy.nccl.settings.NCCL_X }}"),
        rule("(policy.nccl.settings.NCCL_X ~ '') == '10000000000'", id="text", found="so"),
        rule("(policy.gpu.count ~ '') == '10000000000'", id="count", found="{{ policy.gpu.count }}"),
    ]
    rules = load_catalogue([write_rules(tmp_path / "rules", *rows)], built_in=False)
    assert not rules.faults
    policies = [
        {"nccl": {"settings": {"NCCL_X": one}}, "gpu": {"count": 8 if isinstance(one, str) else one}} for one in (10**10, 1e10, "10000000000", 1, 1.0, "1")
    ]
    assert_as_if_alone(tmp_path, rules, [node(f"n{place}", policy=one) for place, one in enumerate(policies)])


def assert_as_if_alone(tmp_path, rules, nodes):
    """Each node's findings in a run of all are those of a run of its own, letter for letter."""

    def findings(folder, *judged):
        run = write_run(folder, *judged)
        judge_run(read_run_input(run), rules, TODAY)
        return [json.dumps(one) for one in json.loads((run / "findings.json").read_text())["findings"]]

    together = findings(tmp_path / "run", *nodes)
    alone = [line for one in nodes for line in findings(tmp_path / f"alone-{one['host']}", one)]
    assert sorted(together) == sorted(alone)
    assert alone


def test_documents_of_which_the_keys_have_the_order_of_the_first_are_not_searched_for_them(monkeypatch):
    remembered, documents = Remembered(), [compact({**node(f"n{number}"), "facts": aged(number)}) for number in range(300)]
    wanted = [decoded(data, None) for data in documents]
    assert decoded(documents[0], remembered) == wanted[0]
    monkeypatch.setattr(remembered.parts, "_document", None)
    assert [decoded(data, remembered) for data in documents[1:]] == wanted[1:]


def aged(number: int) -> dict[str, Any]:
    """The same node at another look: each section took another time, some parts are new each time, some come back, some are seldom another."""
    facts = copy.deepcopy(recorded_nodes()[1])
    sections = facts["sections"]
    for place, section in enumerate(sections.values()):
        section["probe"]["duration_ms"] = [number * 0.1, number + place, 7.25][place % 3]
    sections["node"]["uptime_s"] = number
    sections["limits"]["swap_free_bytes"] = number % 3
    sections["driver"]["probe"]["error"] = "late" if number % 97 == 5 else None
    facts["collector"] = {**facts["collector"], "as_root": number % 50 > 0}
    return facts


@pytest.mark.parametrize("place", range(4))
def test_a_document_that_is_broken_where_others_are_known_is_refused_or_read_as_without_a_memory(place):
    remembered, noise = Remembered(), random.Random(place)
    text = compact({**node("a1"), "facts": aged(1)})
    assert not isinstance(decoded(text, remembered), str)
    for _ in range(40):
        at = noise.randrange(text.index(b'"facts"'), len(text))
        for changed in (text[:at] + text[at + 1 :], text[:at] + noise.choice([b'"', b"}", b"{", b",", b"1", b"\xff"]) + text[at:], text[:at] + text[at + 40 :]):
            assert decoded(changed, remembered) == decoded(changed, None), f"at byte {at}"
            assert decoded(text, remembered) == decoded(text, None)


def test_a_key_of_another_name_in_the_place_of_a_known_one_is_refused():
    remembered, text = Remembered(), compact({**node("a1"), "facts": aged(1)})
    assert not isinstance(decoded(text, remembered), str)
    for part in part_names():
        key = b'"%s":' % part[-1].encode()
        other = text.replace(b"," + key, b',"X' + key[2:], 1)
        if other != text:
            assert decoded(other, remembered) == decoded(other, None), part
            assert decoded(text, remembered) == decoded(text, None)


@pytest.mark.parametrize("order", ["abba", "abbb", "aabab", "abcbca", "abcaabbcc"])
def test_a_part_that_changes_and_stays_or_comes_back_is_what_stands_there(order):
    remembered = Remembered()
    for number, letter in enumerate(order):
        facts = copy.deepcopy(recorded_nodes()[1])
        facts["sections"]["driver"]["branch"] = letter
        facts["sections"]["driver"]["probe"]["duration_ms"] = number
        facts["sections"]["interconnect"]["links"][0]["active"] = letter != "b"
        data = compact({**node(f"n{number}"), "facts": facts})
        assert decoded(data, remembered) == decoded(data, None)
