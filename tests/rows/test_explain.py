"""`unhang explain`: what is known of a thing, found under each way of naming it, always with
sources."""

from __future__ import annotations

import json
import re

import pytest
from case_rows import case_rows

from unhang.cli import main
from unhang.judge.reference.explain import explain
from unhang.judge.reference.nearness import suggestions
from unhang.judge.rules.compiled_catalogue import load_catalogue

ROWS = case_rows(__file__)

CATALOGUE = load_catalogue()


def ids(word):
    return [topic.id for topic in explain(CATALOGUE, word)]


def shown(word):
    return "\n".join(
        f"{name}: {text}" for topic in explain(CATALOGUE, word) for name, text in topic.lines
    )


@pytest.mark.parametrize(
    ("word", "topic"),
    ROWS["test_a_thing_is_found_under_each_way_of_naming_it"],
)
def test_a_thing_is_found_under_each_way_of_naming_it(word, topic):
    assert topic in ids(word)


def test_every_rule_is_explained_with_sources():
    topics = {
        rule.id: next(one for one in explain(CATALOGUE, rule.id) if one.kind == "rule")
        for rule in CATALOGUE.rules
    }
    assert [
        rule_id
        for rule_id, topic in topics.items()
        if not (topic.sources and topic.confidence and dict(topic.lines)["expected"])
    ] == []


@pytest.mark.parametrize("row", CATALOGUE.entries, ids=lambda row: row["id"])
def test_every_entry_is_explained_with_sources(row):
    assert all(topic.sources for topic in explain(CATALOGUE, row["id"]))


@pytest.mark.parametrize("word", ["xid 63", "xid 64", "xid 92", "xid 94", "xid 95"])
def test_answers_to_an_xid_that_disagree_are_all_told_with_their_address(word):
    text = shown(word)
    assert "others say" in text and "gpud says" in text and "https://" in text and "gravity" in text


def test_a_driver_version_is_reported_with_the_rules_that_it_can_make_fire():
    assert "driver-545-23-08-p2p-deadlock" in shown("545.23.08")
    assert "driver-545-23-08-p2p-deadlock" not in shown("535.154.05")
    assert "driver-branch-end-of-life" in shown(
        "535.154.05"
    ) and "driver-branch-end-of-life" not in shown("580.159.04")


@pytest.mark.parametrize(
    ("word", "row"),
    [
        ("595.71.05", "driver_issues/fabric-wide-xid-145"),
        ("nccl 2.28.7", "nccl_issues/main-and-proxy-thread-out-of-order"),
    ],
)
def test_a_version_is_reported_with_its_known_faults_and_not_with_those_of_others(word, row):
    assert f"info {row} (" in shown(word)
    assert row not in shown("595.91.07") + shown("nccl 2.28.9")


def test_a_version_fits_a_screen_with_its_worst_faults_first_and_v_shows_all(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for asked in ("driver 580.126.20", "nccl 2.18.1", "nccl 2.18.1 -v"):
        assert main(["explain", *asked.split()]) == 0
    driver, short, whole = capsys.readouterr().out.split("nccl/2.18.1: ")
    assert max(len(one.splitlines()) for one in (driver, short)) <= 40
    assert "and 28 more (-v shows all)" in short
    found = re.findall(r"(error|warning|info) nccl_issues/", whole)
    assert len(found) == 31
    assert found == sorted(found, key=["error", "warning", "info"].index)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("NCCL_P2P_LEVEL", "NVL: over NVLink alone"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3: ends the process without aborting them"),
        ("unhandled system error", "/dev/shm of 64M: docker run --shm-size=16g"),
    ],
)
def test_values_have_their_meaning_and_nccl_s_own_words_what_they_lead_to(word, said, capsys):
    assert main(["explain", *word.split()]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_rules_that_only_compare_two_versions_are_not_blamed_on_one():
    assert "fabric-manager-version-differs" not in shown(
        "580.159.04"
    ) and "policy-driver-min" not in shown("535.154.05")


def test_a_branch_that_ended_says_when_and_what_is_given_up():
    text = shown("driver 535")
    assert "eol: 2026-06-01" in text and "CUDA 13" in text


def test_an_nccl_version_says_which_torch_brings_it():
    assert "2.5.0, 2.5.1, 2.6.0" in shown("nccl 2.21.5")


def test_what_is_not_known_names_what_is_near():
    assert explain(CATALOGUE, "acs-on-bare-metall") == []
    assert "acs-on-bare-metal" in suggestions(CATALOGUE, "acs-on-bare-metall")


def test_the_command_prints_text_or_one_json_object(capsys):
    assert main(["explain", "xid", "79"]) == 0
    text = capsys.readouterr().out
    assert "fallen off the bus" in text
    assert main(["explain", "xid", "79", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["asked"] == "xid 79" and answer["topics"][0]["sources"]


@pytest.mark.parametrize(
    "word",
    [
        "acs-on-bare-metall",
        "my cat sat here",
        "xid 9999",
        "\x1b[31m",
        "nccl 9.9",
        "driver 5",
        "*",
        "(",
        "gpu (",
    ],
)
def test_the_command_says_in_one_line_that_nothing_is_known(word, capsys):
    assert main(["explain", word]) == 2
    errors = capsys.readouterr().err
    assert (
        "nothing is known of" in errors and "\x1b" not in errors and len(errors.splitlines()) == 1
    )


def test_a_users_own_rules_are_explained_too(tmp_path, capsys):
    own = {
        "rules": [
            {
                "id": "own-rule", "title": "Own", "severity": "info", "scope": "node",
                "when": "gpus.count == 0", "expected": "e", "found": "f",
                "remedy": {"person": "look"}, "sources": [{"url": "u", "says": "s"}],
                "confidence": "inferred",
                "examples": {"match": [{"gpus": {"count": 0}}],
                "near_miss": [{"gpus": {"count": 1}}]},
            }
        ]
    }  # fmt: skip
    (tmp_path / "own.yml").write_text(json.dumps(own))
    assert main(["explain", "own-rule", "--rules", str(tmp_path)]) == 0
    assert "own-rule: Own" in capsys.readouterr().out


# ---- how old the tables are


def test_every_table_says_how_old_it_is():
    assert [name for name, table in CATALOGUE.tables.items() if "as_of" not in table.row] == []


def test_stale_tables_are_listed_and_counted_by_the_exit_code(capsys):
    assert main(["catalogue", "--stale", "2000-01-01"]) == 0
    assert "0 tables" in capsys.readouterr().out
    assert main(["catalogue", "--stale", "2999-01-01", "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert {"table": "xids", "as_of": "2026-11-20", "rows": 172} in answer["stale"]


def test_of_several_names_the_unknown_one_is_named_and_the_others_explained(capsys):
    assert main(["explain", "xid", "79", "NCCL_P2P_DISABEL", "xid", "94"]) == 2
    shown = capsys.readouterr()
    assert "xids/79:" in shown.out and "xids/94:" in shown.out
    assert "nothing is known of 'NCCL_P2P_DISABEL' (did you mean NCCL_P2P_DISABLE?)" in shown.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GPU has fallen off the bus", "xid_hardware: "),
        ("NCCL WARN Call to ibv_create_qp failed", "memlock_ulimit: "),
        (
            "CUDA error: an illegal memory access was encountered",
            "error message: a kernel on a GPU failed",
        ),
    ],
)
def test_text_of_an_error_is_read_as_diagnose_reads_it(text, shown, capsys):
    assert main(["explain", text]) == 0
    out = capsys.readouterr().out
    assert out.startswith(shown)
    assert "unhang diagnose LOG" in out


def test_variable_with_a_value_of_which_nothing_is_known_is_explained_by_its_name():
    assert ids("NCCL_IB_HCA=mlx5_1") == ids("NCCL_IB_HCA") != []
    assert ids("NCCL_P2P_DISABLE=1")[0] == "hiding_settings/NCCL_P2P_DISABLE=1"
    assert ids("NCCL_NO_SUCH_NAME=1") == []


@pytest.mark.parametrize(
    ("title", "cause"),
    [
        ("A GPU, its memory or its slot fails", "xid_hardware"),
        ("the master's name does not resolve", "dns_hostname"),
        ("NCCL cannot reach the address that a peer announced", "firewall_ports"),
    ],
)
def test_a_title_that_diagnose_shows_is_a_name_of_its_cause(title, cause):
    assert [(topic.kind, topic.id) for topic in explain(CATALOGUE, title)] == [("cause", cause)]


@pytest.mark.parametrize(
    ("asked", "kind", "line"),
    ROWS["test_facts_sections_and_causes_are_topics"],
)
def test_facts_sections_and_causes_are_topics(asked, kind, line):
    [topic] = [one for one in explain(CATALOGUE, asked) if one.kind == kind]
    assert any(label == line[0] and line[1] in text for label, text in topic.lines)
