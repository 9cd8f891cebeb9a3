"""A rule as sentences: its condition, and its texts with descriptions of the values from nodes, without syntax of expressions."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from unhang.audit.reference.explain import TOO_LONG, explain
from unhang.audit.reference.in_words import condition, template
from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.cli import main

CATALOGUE = load_catalogue()
OF_EXPRESSIONS = re.compile(r"\btables\.|\bitem\b|selectattr|rejectattr|\||\{\{|\bmap\(|\bis (?:not )?version\(| [=!<>]= ")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"applies": "gpus.count > 1", "when": "not interconnect.acs_enabled"}, "gpus.count is more than 1, and interconnect.acs_enabled is no"),
        ({"when": "driver.loaded.version is version('580.65', '<')"}, "driver.loaded.version is older than 580.65"),
        ({"when": "driver.loaded.version is not version('580.65', '==')"}, "driver.loaded.version is not 580.65"),
        ({"when": "gpus.model is not known"}, "gpus.model is not known"),
        ({"when": "gpus.model is not unknown"}, "gpus.model was read"),
        ({"when": "gpus.devices | rejectattr('error', 'ne', 'x') | list | length == 0"}, "there are no gpus.devices whose error is x"),
        (
            {"for_each": "nccl.settings | selectattr('name', 'in', ['A', 'B'])", "applies": "gpus.count > 0", "when": "item.value | trim != '1'"},
            "for each of nccl.settings whose name is among A or B, where gpus.count is more than 0: its value is not 1",
        ),
        (
            {"applies": "gpus.count > 0 or gpus.pci_count > 0", "when": "node.uptime_s < -1"},
            "(gpus.count is more than 0, or gpus.pci_count is more than 0), and node.uptime_s is less than -1",
        ),
        (
            {"for_each": "faults.events | selectattr('kind', 'equalto', 'xid')", "when": "item.codes | intersect(tables.xid_levels.fatal.codes) | length > 0"},
            "for each of faults.events whose kind is xid: "
            "its codes and the codes of fatal in the table “How grave each Xid is for a training node” have something in common",
        ),
        ({"compare": "kernel.release"}, "nodes differ in kernel.release"),
        ({"when": " and ".join(["gpus.count > 1"] * 40)}, None),  # too long to be read
        ({"when": "gpus.devices | map('pprint') | list"}, None),
    ],
)  # fmt: skip
def test_a_condition_is_a_sentence(row, sentence):
    assert condition(row, CATALOGUE.tables) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("NCCL {{ item.version }} at {{ item.path }}", "NCCL <version> at <path>"),
        ("{{ driver.loaded.version }}{{ ', held' if driver.held else '' }}", "<driver.loaded.version>"),
        ("{{ item.codes | pprint }} of it", "… of it"),
    ],
)
def test_a_text_says_what_a_node_fills_in(text, sentence):
    assert template(text, CATALOGUE.tables) == sentence


def test_each_rule_is_explained_in_words_and_none_of_them_is_of_its_expressions():
    topics = [next(one for one in explain(CATALOGUE, rule.id) if one.kind == "rule") for rule in CATALOGUE.rules]
    shown = [{name: text for name, text in topic.lines if name in ("looks at", "found when", "expected", "reported as", "remedy")} for topic in topics]
    assert [topic.id for topic, texts in zip(topics, shown, strict=True) if len(texts) != 5 or not all(texts.values())] == []
    assert [(topic.id, text) for topic, texts in zip(topics, shown, strict=True) for text in texts.values() if OF_EXPRESSIONS.search(text)] == []
    assert [topic.id for topic, texts in zip(topics, shown, strict=True) if texts["found when"] == TOO_LONG] == []


@pytest.mark.parametrize("rule", [rule for rule in CATALOGUE.rules if "found_when" in rule.row], ids=lambda rule: rule.id)
def test_a_sentence_is_written_only_where_none_can_be_made_and_has_each_number_of_its_condition(rule):
    """So that no condition has two sentences, and a limit that moves moves in both."""
    assert condition(rule.row, CATALOGUE.tables) is None
    written = " ".join(str(rule.row.get(name, "")) for name in ("applies", "for_each", "when"))
    numbers = {one for one in re.findall(r"(?<![\w.(])\d+(?:\.\d+)*(?![\w.)])", written) if one not in ("0", "1")}
    assert sorted(numbers - {*re.findall(r"\d+(?:\.\d+)*", rule.row["found_when"])}) == []


def test_a_rule_of_ones_own_that_has_no_sentence_says_where_its_condition_stands():
    (rule,) = [one for one in CATALOGUE.rules if one.id == "gpu-in-use"]
    bare = replace(CATALOGUE, rules=[replace(rule, row={name: value for name, value in rule.row.items() if name != "found_when"})])
    (topic,) = explain(bare, "gpu-in-use")
    assert dict(topic.lines)["found when"] == TOO_LONG


def test_the_expressions_are_shown_when_they_are_asked_for(capsys):
    assert main(["explain", "xid-fatal"]) == 0
    assert "tables.xid_levels" not in capsys.readouterr().out
    assert main(["explain", "xid-fatal", "-v"]) == 0
    assert "when: item.codes | intersect(tables.xid_levels.fatal.codes) | length > 0" in " ".join(capsys.readouterr().out.split())
