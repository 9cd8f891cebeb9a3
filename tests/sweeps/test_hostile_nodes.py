"""A node's answer never affects the results of other nodes: any content is read as far as possible,
or makes only this node invalid."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from judge_cases import OK, node, rule, sections, write_rules, write_run

from unhang.cli import main
from unhang.core.limits import Limits, Stopped, run_limited
from unhang.core.run.documents import MAX_NODE_BYTES
from unhang.core.run.run_folder import file_stem
from unhang.core.run.run_input import read_run_input
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.node_rules import MOST_FINDINGS

TODAY = "2026-06-01"


@pytest.fixture(scope="module")
def catalogue():
    return load_catalogue()


def judged(run, catalogue):
    judge_run(read_run_input(run), catalogue, TODAY)
    return json.loads((run / "findings.json").read_text())


def of_host(found, host):
    return {(one["rule"], one["verdict"]) for one in found["findings"] if one["host"] == host}


@pytest.mark.parametrize(
    "more",
    [
        {"cuda": {"probe": OK, "cudnn": [None]}},
        {"cuda": {"probe": OK, "cudnn": [None, {"version": "9.1.0"}]}},
        {
            "nccl": {
                "probe": OK,
                "libraries": [None],
                "settings": [None, {"name": "NCCL_DEBUG", "value": "WARN"}],
            }
        },
        {"gpus": {"probe": OK, "count": 1, "devices": [None]}},
        {"processes": {"probe": OK, "running": [None]}},
    ],
)
def test_a_list_with_a_null_in_it_leaves_the_other_nodes_their_result(tmp_path, catalogue, more):
    run = write_run(tmp_path / "run", node("a1", {**sections(), **more}), node("b1"))
    alone = write_run(tmp_path / "alone", node("b1"))
    found = judged(run, catalogue)
    assert found["nodes"].get("ok", 0) + found["nodes"].get("invalid", 0) == 2
    assert of_host(found, "b1") == of_host(judged(alone, catalogue), "b1")


def test_a_null_item_decides_nothing(tmp_path):
    rules = load_catalogue(
        [
            write_rules(
                tmp_path / "rules", rule("item.version == '1'", for_each="cuda.cudnn", id="one")
            )
        ],
        built_in=False,
    )
    run = write_run(
        tmp_path / "run", node("a1", {**sections(), "cuda": {"probe": OK, "cudnn": [None]}})
    )
    assert of_host(judged(run, rules), "a1") == {("one", "unknown")}


def test_every_null_that_the_schema_lets_through_costs_its_own_node_at_most(tmp_path, catalogue):
    """Each list of the schema with a null in it, one node each."""
    from unhang.core.schemas.reading import read_schema, resolved

    schema = read_schema("node-facts-1")

    def lists(place, path):
        place = resolved(place, schema["$defs"])
        if "items" in place:
            yield path
        for name, below in (place.get("properties") or {}).items():
            yield from lists(below, [*path, name])

    nodes = [node("good")]
    for name, place in schema["properties"]["sections"]["properties"].items():
        for path in lists(place, []):
            if not path or path[0] == "probe":
                continue
            section = value = {}
            for part in path[:-1]:
                value[part] = {}
                value = value[part]
            value[path[-1]] = [None]
            nodes.append(node(f"n{len(nodes)}", {**sections(), name: {"probe": OK, **section}}))
    found = judged(write_run(tmp_path / "run", *nodes), catalogue)
    assert sum(found["nodes"].values()) == len(nodes) > 30
    assert not [one["found"] for one in found["findings"] if "judging it failed" in one["found"]]


DEEP = '{"a":' * 900 + "1" + "}" * 900


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace('"policy":{}', '"policy":{"a":"\\ud800"}'), "half a character"),
        (lambda text: text.replace('"policy":{}', '"policy":' + DEEP), "nest too deeply"),
        (lambda text: text.replace('"policy":{}', '"policy":{"a":1e999}'), "too large"),
        (
            lambda text: text.replace('"policy":{}', '"policy":{"a":' + "9" * 5000 + "}"),
            "too large",
        ),
        (lambda text: text.replace("535.154.05", "\\ud800"), "half a character"),
        (lambda text: text[:-1] + "]", "not valid JSON"),
        (lambda text: text.encode().replace(b"535.154.05", b"\xff"), "not UTF-8"),
        (lambda text: text + " " * MAX_NODE_BYTES, "larger than"),
    ],
)
def test_what_no_strict_reader_takes_is_invalid_for_judge_and_page_alike(
    tmp_path, catalogue, damage, message
):
    from unhang.audit.report.run import read_nodes

    run = write_run(tmp_path / "run", node("a1"), node("b1"))
    path = run / "nodes" / "a1.json"
    damaged = damage(json.dumps(json.loads(path.read_text()), separators=(",", ":")))
    path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    found = judged(run, catalogue)
    assert found["nodes"] == {"ok": 1, "invalid": 1}
    assert message in json.dumps([one for one in found["findings"] if one["host"] == "a1"])
    shown = {one.host: one for one in read_nodes(run)}
    assert (shown["a1"].status, shown["b1"].status) == ("invalid", "ok")
    assert message in shown["a1"].message


@pytest.mark.parametrize("length", [199, 200, 201, 230, 255, 300])
def test_a_long_host_name_counts_once(tmp_path, catalogue, length):
    host = "n" * length
    run = write_run(tmp_path / "run", node("b1"), meant=["b1", host])
    (run / "nodes" / f"{file_stem(host)}.json").write_text(json.dumps(node(host)))
    found = judged(run, catalogue)
    assert (found["nodes"], found["host_count"]) == ({"ok": 2}, 2)


def test_numbers_without_end_are_shown_as_they_stand(tmp_path, capsys):
    big = int("9" * 101)
    facts = {**sections(), "gpus": {"probe": OK, "count": 1, "devices": [{"index": big}]}}
    rules = str(
        write_rules(
            tmp_path / "rules",
            rule("item.index > 3", for_each="gpus.devices", id="big", severity="error"),
        )
    )
    host = "gpu" + "1" * 120
    run = write_run(tmp_path / "run", node("a1", facts), node(host, facts), meant=["a1", host])
    assert main(["judge", str(run), "--rules", rules]) in (1, 2)
    assert capsys.readouterr().out
    assert main(["report", str(run), "-v"]) in (0, 1, 2)
    shown = "".join(capsys.readouterr().out.split())
    assert ("9" * 90 in shown, "1" * 90 in shown) == (True, True)
    assert (run / "report.html").read_text().startswith("<!")


@pytest.mark.parametrize(
    ("each", "item"),
    [
        ("nccl.libraries", {"path": "/opt/libnccl.so." + "8" * 101, "version": "2.21.5"}),
        ("nccl.libraries", {"path": "/opt/libnccl " + "8" * 101, "version": "2.21.5"}),
        (
            "nccl.settings",
            {
                "name": "NCCL_BOGUS_" + "8" * 101,
                "value": "1",
                "file": "/etc/nccl.conf",
                "line": 1,
                "source": "nccl_conf",
            },
        ),
        (
            "nccl.settings",
            {
                "name": "NCCL_BOGUS " + "8" * 101,
                "value": "1",
                "file": "/etc/nccl.conf",
                "line": 1,
                "source": "nccl_conf",
            },
        ),
    ],
)
def test_a_name_that_ends_in_a_number_without_end_is_shown_in_table_and_page(
    tmp_path, capsys, each, item
):
    """On one node, on two that are folded, and beside one whose name ends in a number that is
    folded."""
    name = "path" if "path" in item else "name"
    facts = [
        {
            **sections(),
            "nccl": {
                "probe": OK,
                each.partition(".")[2]: [item, {**item, name: item[name][:-100]}],
            },
        }
        for _ in range(2)
    ]
    rules = str(
        write_rules(
            tmp_path / "rules",
            rule(
                f"item.{name} != ''",
                for_each=each,
                id="named",
                severity="error",
                found=f"{{{{ item.{name} }}}}",
            ),
        )
    )
    run = write_run(tmp_path / "run", node("a1", facts[0]), node("a2", facts[1]), node("b1"))
    assert main(["judge", str(run), "--rules", rules]) == 1
    capsys.readouterr()
    assert main(["report", str(run), "-v"]) == 1
    shown = "".join(capsys.readouterr().out.split())
    assert ("8" * 60 in shown, "a[1-2]" in shown) == (True, True)
    assert "8" * 60 in (run / "report.html").read_text()


def settings(number, rows=1024):
    return [
        {
            "name": f"NCCL_BOGUS_{number}_{row}",
            "value": str(row),
            "file": "/etc/nccl.conf",
            "line": row,
            "source": "nccl_conf",
        }
        for row in range(rows)
    ]


def test_a_node_with_a_thousand_faults_has_a_bounded_number_of_findings(tmp_path):
    catalogue = load_catalogue(
        [
            write_rules(
                tmp_path / "rules", rule("item.name != 'x'", for_each="nccl.settings", id="each")
            )
        ],
        built_in=False,
    )
    run = write_run(
        tmp_path / "run", node("a1", {**sections(), "nccl": {"probe": OK, "settings": settings(1)}})
    )
    found = judged(run, catalogue)
    assert len(found["findings"]) == 64
    assert [one["where"] for one in found["findings"] if "items" in one["where"]] == [
        {"items": 1024 - 63}
    ]
    assert found["totals_by_rule"]["each"]["fail"] == 1024  # folded findings are counted too


def test_forty_nodes_with_a_thousand_faults_each_leave_no_rule_out_and_take_bounded_memory(
    tmp_path,
):
    """Three rules that find each row of 40 answers: 122,880 faults. The stored and written number
    is limited, for each node and in all."""
    rows = [
        rule("item.name != 'x'", for_each="nccl.settings", id=f"each-{number}")
        for number in range(3)
    ]
    rules = load_catalogue(
        [write_rules(tmp_path / "rules", *rows, rule("gpus.count == 2", id="good"))], built_in=False
    )
    facts = [
        {**sections(), "nccl": {"probe": OK, "settings": settings(number)}} for number in range(40)
    ]
    run = write_run(
        tmp_path / "run",
        *(node(f"n{number:02d}", one) for number, one in enumerate(facts)),
        node("good"),
    )
    head = run_limited(
        lambda mark: judge_run(read_run_input(run), rules, TODAY, mark=mark),
        Limits(cpu_s=300, memory_bytes=96 << 20, wall_s=3000),
    )
    assert not isinstance(head, Stopped), head
    found = json.loads((run / "findings.json").read_text())
    assert (head["nodes"], head["catalogue"]["stopped"]) == ({"ok": 41}, [])
    assert [head["totals_by_rule"][f"each-{number}"]["fail"] for number in range(3)] == [
        40 * 1024
    ] * 3
    per_rule = Counter(
        (one["host"], one["rule"])
        for one in found["findings"]
        if one["host"] != "good" and one["rule"] != "good"
    )
    assert (len(per_rule), set(per_rule.values())) == (40 * 3, {MOST_FINDINGS})
    assert ("good", "fail") in of_host(found, "good")


def test_an_answer_that_takes_too_long_to_judge_costs_no_rule(tmp_path):
    heavy = (
        " + ".join(["(interconnect.pairs | selectattr('a', '>', 99999) | list | length)"] * 29)
        + " > 0"
    )
    pairs = [{"a": one, "b": one} for one in range(8128)]
    nodes = [
        node("slow", {**sections(), "interconnect": {"probe": OK, "pairs": pairs}}),
        node("good"),
    ]
    rows = [rule(heavy, id=f"heavy-{number}") for number in range(60)]
    rules = load_catalogue(
        [write_rules(tmp_path / "rules", *rows, rule("gpus.count == 2", id="good"))], built_in=False
    )
    found = judged(write_run(tmp_path / "run", *nodes), rules)
    assert found["nodes"] == {"invalid": 1, "ok": 1}
    assert found["catalogue"]["stopped"] == []
    assert ("good", "fail") in of_host(found, "good")


def test_a_fault_of_unhang_over_one_node_makes_that_node_invalid(tmp_path):
    rules = load_catalogue(
        [write_rules(tmp_path / "rules", rule("gpus.count == 2", id="good"))], built_in=False
    )
    run = write_run(tmp_path / "run", node("a1"), node("b1"))
    faults = iter([AttributeError("no attribute 'version'")])

    def mark(rule_id):
        """Fails at the first node, as a fault anywhere in judging it would."""
        for fault in faults:
            raise fault

    judge_run(read_run_input(run), rules, TODAY, mark=mark)
    found = json.loads((run / "findings.json").read_text())
    assert found["nodes"] == {"invalid": 1, "ok": 1}
    assert ("good", "fail") in of_host(found, "b1")
