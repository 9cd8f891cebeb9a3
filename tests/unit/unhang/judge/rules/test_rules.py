"""Rules: rows compiled, verdicts of one node, evidence, and where a finding is."""

from __future__ import annotations

import pytest
from judge_cases import OK, rule, sections

from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view, check_examples, verdict_of
from unhang.judge.rules.node_rules import finding_texts, judge_rule, node_world
from unhang.judge.rules.rules import RuleError, compile_rule

VIEW = catalogue_view()


def judged(row, facts=None, **more):
    compiled = compile_rule(row)
    return judge_rule(
        compiled,
        node_world(example_node({**(sections() if facts is None else facts), **more}), VIEW),
    )


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (rule("gpus.count == 2"), "fail"),
        (rule("gpus.count == 3"), "pass"),
        (rule("gpus.count == 2", applies="gpus.count > 2"), "skip"),
        (rule("gpus.count == 2", applies="gpus.pci_count > 2"), "unknown"),
        (rule("gpus.pci_count == 2"), "unknown"),
        (rule("gpus.count == policy.gpu.count"), "skip"),
        (rule("item.index == 5", for_each="gpus.devices"), "pass"),
        (rule("item.index == 1", for_each="gpus.devices"), "fail"),
        (rule("item.name == 'x'", for_each="nccl.settings"), "unknown"),
        (rule("item.uuid == 'x'", for_each="gpus.devices | selectattr('index', '>', 5)"), "skip"),
        (rule(True), "fail"),
        (rule(False), "pass"),
    ],
)
def test_a_rule_has_one_of_the_verdicts(row, verdict):
    assert verdict_of(compile_rule(row), sections(), VIEW) == verdict


def test_a_list_that_was_not_read_is_unknown_and_an_empty_one_is_skipped():
    row = rule("item.index == 0", for_each="gpus.devices")
    assert [
        one.verdict
        for one in judged(
            row, {"gpus": {"probe": {"status": "timeout", "error": "nvmlDeviceGetCount"}}}
        )
    ] == ["unknown"]
    assert [one.verdict for one in judged(row, {"gpus": {"probe": OK, "devices": []}})] == ["skip"]


def test_each_item_has_a_verdict_of_its_own_and_its_path():
    facts = sections()
    facts["gpus"]["devices"][1]["pcie"]["width_now"] = 8
    found = judged(
        rule("item.pcie.width_now < item.pcie.width_max", for_each="gpus.devices"), facts
    )
    failed = [one for one in found if one.verdict == "fail"]
    assert [one.item for one in failed] == ["gpus.devices[1]"]
    assert failed[0].evidence == (
        ("gpus.devices[1].pcie.width_now", 8),
        ("gpus.devices[1].pcie.width_max", 16),
    )


def test_evidence_is_what_the_deciding_expression_read_verbatim():
    (found,) = judged(
        rule(
            "driver.loaded.version is version('535.154.05') and gpus.count > 1",
            applies="gpus.model is startswith('NVIDIA')",
        )
    )
    assert found.evidence == (("driver.loaded.version", "535.154.05"), ("gpus.count", 2))


def test_of_a_selection_only_what_was_selected_is_evidence():
    facts = sections()
    facts["gpus"]["devices"][0]["pcie"]["width_now"] = 8
    (found,) = judged(
        rule("gpus.devices | selectattr('pcie.width_now', '<', 16) | list | length > 0"), facts
    )
    assert found.evidence == (("gpus.devices[0].pcie.width_now", 8),)


def test_evidence_is_bounded_in_number_and_length():
    facts = {
        "gpus": {
            "probe": OK,
            "model": "x" * 4000,
            "devices": [{"index": number} for number in range(100)],
        }
    }
    (found,) = judged(
        rule("gpus.devices | map(attribute='index') | sum > 0 and gpus.model is startswith('x')"),
        facts,
    )
    assert len(found.evidence) == 16
    assert found.evidence[-1][0] == "…"
    (found,) = judged(rule("gpus.model is startswith('x')"), facts)
    assert len(found.evidence[0][1]) == 501


def test_items_that_lack_the_same_fact_are_reported_once():
    facts = sections(width=None)
    found = judged(rule("item.pcie.width_now < 16", for_each="gpus.devices"), facts)
    assert [(one.verdict, one.items) for one in found] == [("unknown", 2)]
    assert found[0].missing[0][0] == "gpus.devices[*].pcie.width_now"


def test_a_reason_in_probe_unread_is_quoted():
    row = {"field": "devices[*].pcie", "status": "denied", "reason": "needs root"}
    facts = sections(gpus={"probe": {**OK, "unread": [row]}, "devices": [{"index": 0}]})
    (found,) = judged(rule("item.pcie.width_now < 16", for_each="gpus.devices"), facts)
    assert found.missing == (("gpus.devices[0].pcie.width_now", "denied", "needs root"),)


def test_texts_quote_facts_items_and_policy():
    row = rule(
        "item.index == 1",
        for_each="gpus.devices",
        expected="{{ policy.gpu.count }} GPUs",
        found="{{ item.uuid }} of {{ gpus.model }}",
    )
    compiled = compile_rule(row)
    world = node_world(example_node({**sections(), "policy": {"gpu": {"count": 8}}}), VIEW)
    failed = next(one for one in judge_rule(compiled, world) if one.verdict == "fail")
    items = {one.path: one for one in world.items(compiled.for_each.evaluate(world))}
    assert finding_texts(compiled, world, failed, items) == {
        "expected": "8 GPUs",
        "found": "GPU-1 of NVIDIA RTX 3090",
        "remedy.person": "look",
    }


@pytest.mark.parametrize(
    ("row", "field", "words_"),
    [
        (rule(None), "when", "is missing"),
        (rule("gpus.count"), "when", "must be true or false"),
        (rule("gpus.count > 1", for_each="gpus.count"), "for_each", "needs a list"),
        (rule("gpus.count > 1", compare="gpus.count"), "compare", "belongs to scope group"),
        (rule(None, scope="group"), "compare", "is missing"),
        (rule(None, scope="group", compare="gpus.devices"), "compare", "not an object"),
        (
            rule("gpus.count > 1", scope="group", compare="gpus.count"),
            "when",
            "unknown name 'gpus'",
        ),
        (rule("gpus.count > 1", expected="{{ gpus.cuont }}"), "expected", "did you mean count?"),
        (rule("gpus.count > 1", remedy={"person": "{{ nope }}"}), "remedy.person", "unknown name"),
        (rule("item.index > 1"), "when", "unknown name 'item'"),
    ],
)
def test_a_row_at_fault_names_its_field(row, field, words_):
    with pytest.raises(RuleError) as problem:
        compile_rule(row)
    assert problem.value.field == field
    assert words_ in str(problem.value)


def test_examples_that_do_not_hold_are_reported():
    row = rule(
        "gpus.count == 2",
        examples={"match": [{"gpus": {"count": 3}}], "near_miss": [{"gpus": {"count": 2}}]},
    )
    found = [str(one) for one in check_examples(compile_rule(row))]
    assert found == [
        "a-rule: match[0]: the rule must give fail, and gives pass",
        "a-rule: near_miss[0]: the rule must give pass or skip, and gives fail",
    ]


def test_a_rule_that_passes_silently_without_its_fact_is_reported():
    silent = rule(
        "gpus.devices | map(attribute='uuid') | known | length == 1",
        examples={"match": [{"gpus": {"devices": [{"uuid": "x"}]}}], "near_miss": [{}]},
    )
    honest = rule(
        "gpus.devices | map(attribute='index') | sum == 1",
        examples={"match": [{"gpus": {"devices": [{"index": 1}]}}], "near_miss": [{}]},
    )
    assert [
        one.example for one in check_examples(compile_rule(honest)) if "match" in one.example
    ] == []
    assert [
        one.found for one in check_examples(compile_rule(silent)) if one.example == "match[0]"
    ] == []
