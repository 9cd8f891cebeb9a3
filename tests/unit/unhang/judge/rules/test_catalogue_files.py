"""Files of rules: every fault is one line with file and place, and spoils nothing but its own
row."""

from __future__ import annotations

import json
import os

import pytest
from judge_cases import rule, write_rules

from unhang.cli import main
from unhang.judge.rules.compiled_catalogue import load_catalogue

ROW = """rules:
  - id: a-rule
    title: A rule
    severity: error
    scope: node
    when: gpus.count == 0
    expected: something
    found: something else
    remedy: {person: look}
    sources: [{url: "https://example.org/", says: so}]
    confidence: documented
    examples: {match: [{gpus: {count: 0}}], near_miss: [{gpus: {count: 1}}]}
    costs: jobs fail
"""


def faults_of(folder, text, name="own.yml"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return load_catalogue([folder], built_in=False).faults


def test_the_projects_own_catalogue_has_no_fault_and_sources_for_every_row():
    catalogue = load_catalogue()
    assert catalogue.faults == ()
    assert all(rule.row["sources"] for rule in catalogue.rules)
    assert all(row["sources"] and row["confidence"] for row in catalogue.table_rows)


def test_a_good_file_is_loaded(tmp_path):
    assert faults_of(tmp_path, ROW) == ()


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            "    title: A rule",
            "    title: A rule\n    sympotms: []",
            4,
            "rule a-rule: sympotms: this key is unknown (did you mean symptoms?); allowed are id, title",
        ),
        ("    title: A rule\n", "", 2, "the key title is missing"),
        (
            "severity: error",
            "severity: eror",
            4,
            "severity: 'eror' (did you mean error?) is not allowed; allowed are critical, error",
        ),
        ("scope: node", "scope: [node]", 5, "scope: a list"),
        (
            "gpus.count == 0",
            "gpus.cuont == 0",
            6,
            "when: unknown fact path gpus.cuont (did you mean count?)",
        ),
        ("gpus.count == 0", "driver.loaded.version is version('abc')", 6, "bad version literal"),
        ("gpus.count == 0", "'{% for %}'", 6, "when: "),
        ("found: something else", "found: '{{ nope }}'", 8, "found: unknown name 'nope'"),
        (
            "remedy: {person: look}",
            "remedy: {nobody: look}",
            9,
            "remedy: this must be {role, policy, person} or {person}, and is a map with nobody",
        ),
        (
            "remedy: {person: look}",
            "remedy: {role: r, policy: {driver: {verison: '1'}}}",
            9,
            "remedy.policy.driver.verison: this key is unknown (did you mean version?)",
        ),
        (
            '    sources: [{url: "https://example.org/", says: so}]\n',
            "",
            2,
            "the key sources is missing",
        ),
        (
            'sources: [{url: "https://example.org/", says: so}]',
            "sources: []",
            10,
            "sources: a list is not allowed",
        ),
        (
            "confidence: documented",
            "confidence: sure",
            11,
            "allowed are documented, maintainers, reported, inferred",
        ),
        ("count: 0}}]", "count: x}}]", 12, "examples.match[0]: gpus.count: Expected int"),
        ("{gpus: {count: 1}}", "{gpsu: {count: 1}}", 12, "(did you mean gpus?)"),
        ("- id: a-rule", "- id: A Rule", 2, "id: 'A Rule' does not match"),
    ],
)
def test_a_fault_is_one_line_with_file_and_place(tmp_path, old, new, line, message):
    assert old in ROW
    (fault,) = faults_of(tmp_path, ROW.replace(old, new, 1))
    assert fault.startswith(f"{tmp_path / 'own.yml'}:{line}: ")
    assert message in fault
    assert "\n" not in fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [\n", ":2: YAML: "),
        ("rules:\n  - id: x\n bad: y\n", ":3: YAML: "),
        ("rules:\n\t- id: x\n", ":2: YAML: "),
        ("a: &a [x, x]\nb: &b [*a, *a]\nrules: [*b]\n", ":1: aliases and anchors"),
        ("rules: []\nrules: []\n", ":2: the key 'rules' occurs twice"),
        ("rules: !!python/object/apply:os.system ['true']\n",
        "the tag tag:yaml.org,2002:python/object/apply:os.system is not allowed"),
        ("rules: " + "[" * 100 + "]" * 100 + "\n", "nests more than 40 deep"),
        ("rule: []\n", ":1: rule: this key is unknown (did you mean rules?)"),
        ("- id: x\n", "must be a map, and is a list"),
        ("", "must be a map, and is nothing"),
        ("rules: 5\n", "rules: this must be a list, and is 5"),
        ("? [a]\n: b\n", "a key must be a text"),
        ("# " + "x" * (2 * 1024 * 1024) + "\n", "is larger than 2097152 bytes"),
        ("rules: [" + "1," * 200_001 + "]", "holds more than 200000 values"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_file_of_rules_is_refused_in_one_line(tmp_path, text, message):
    found = faults_of(tmp_path, text)
    assert message in found[0]
    assert all("\n" not in fault for fault in found)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "own.yml").write_bytes(b"rules: \xff\xfe\n")
    assert "is not UTF-8" in load_catalogue([tmp_path], built_in=False).faults[0]


def test_an_id_that_is_used_twice_names_both_places(tmp_path):
    faults_of(tmp_path, ROW)
    (fault,) = faults_of(tmp_path, ROW, "second.yml")
    assert (
        fault == f"{tmp_path}/second.yml:2: the id a-rule is already used at {tmp_path}/own.yml:2"
    )


def test_a_row_at_fault_leaves_its_neighbours_alone(tmp_path):
    write_rules(
        tmp_path / "rules",
        rule("gpus.cuont == 1", id="bad"),
        rule(id="good"),
        rule(id="badder", severity="x"),
    )
    catalogue = load_catalogue([tmp_path / "rules"], built_in=False)
    assert [one.id for one in catalogue.rules] == ["good"]
    assert len(catalogue.faults) == 2


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "no such folder"), ("empty", "holds no .yml file")]
)
def test_a_folder_without_rules_is_reported(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    assert message in load_catalogue([tmp_path / name], built_in=False).faults[0]


@pytest.mark.slow
@pytest.mark.parametrize("built_in", [False, True])
def test_rows_of_tables_are_looked_up_and_counted(tmp_path, built_in):
    table = {
        "title": "Xids",
        "key": "code",
        "confidence": "documented",
        "sources": [{"url": "u", "says": "s"}],
        "rows": [{"code": 79, "means": "gone"}],
    }
    own = rule("tables.xids['79'].means == 'gone'", id="own")
    (tmp_path / "own.yml").write_text(
        json.dumps(
            {
                "tables": {"own_xids": table},
                "rules": [{**own, "when": own["when"].replace("xids", "own_xids")}],
            }
        )
    )
    catalogue = load_catalogue([tmp_path], built_in=built_in)
    assert catalogue.faults == ()
    assert [
        row["id"] for row in catalogue.table_rows if built_in is False or row["kind"] == "own_xids"
    ] == ["own_xids/79"]


def test_the_command_lists_every_row_as_json(capsys):
    assert main(["catalogue", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {"id", "kind", "confidence", "sources"} <= set(rows[0])
    assert len({row["id"] for row in rows}) == len(rows)


@pytest.mark.slow
def test_the_command_checks_a_folder_and_prints_each_fault(tmp_path, capsys):
    examples = {"match": [{"gpus": {"count": 99}}], "near_miss": [{"gpus": {"count": 1}}]}
    assert (
        main(
            [
                "catalogue",
                "check",
                str(
                    write_rules(
                        tmp_path / "good",
                        rule("gpus.count == 99", examples=examples, costs="jobs fail"),
                    )
                ),
            ]
        )
        == 0
    )
    assert "1 rule," in capsys.readouterr().out
    assert (
        main(
            [
                "catalogue",
                "check",
                str(
                    write_rules(
                        tmp_path / "bad", rule("gpus.cuont == 0"), rule(id="b", severity="x")
                    )
                ),
            ]
        )
        == 1
    )
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["catalogue", "check", str(write_rules(tmp_path / "unproven", rule()))]) == 1
    assert "match[0]: the rule must give fail, and gives unknown" in capsys.readouterr().out


def test_rules_of_a_user_leave_the_projects_own_compiled_as_they_are(tmp_path):
    own = {one.id: one for one in load_catalogue().rules}
    taken = next(iter(own))
    loaded = load_catalogue([write_rules(tmp_path / "rules", rule(id="mine"), rule(id=taken))])
    found = {one.id: one for one in loaded.rules}
    assert [name for name, one in own.items() if found[name] is not one] == []
    assert set(found) - set(own) == {"mine"}
    assert [fault for fault in loaded.faults if f"the id {taken} is already used" in fault]


@pytest.mark.timeout(60)
def test_a_pipe_in_a_folder_of_rules_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yml")
    (tmp_path / "own.yml").write_text(ROW)
    loaded = load_catalogue([tmp_path], built_in=False)
    assert [rule.id for rule in loaded.rules] == ["a-rule"]
    (fault,) = loaded.faults
    assert fault == f"{tmp_path / 'pipe.yml'}: it is not a regular file"


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_folder_of_rules_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "rules")
    (fault,) = load_catalogue([tmp_path / "rules"], built_in=False).faults
    assert str(tmp_path / "rules") in fault
    assert "\n" not in fault
