"""Expressions: those that are accepted, the messages of those that are refused, and facts that were
not read."""

from __future__ import annotations

import pytest
from case_rows import case_rows
from judge_cases import OK, sections

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.expression import ExpressionError, compile_expression, compile_template
from unhang.judge.rules.node_rules import node_world
from unhang.judge.rules.rules import node_names
from unhang.judge.rules.values import RuleStopped, Undecided, plain

ROWS = case_rows(__file__)

TABLES = load_catalogue().tables


def evaluated(source, facts=None, **more):
    world = node_world(
        example_node({**(sections() if facts is None else facts), **more}), catalogue_view(TABLES)
    )
    return plain(compile_expression(source, node_names(TABLES)).evaluate(world))


@pytest.mark.parametrize(
    ("source", "value"),
    ROWS["test_an_expression_yields_its_value"],
)
def test_an_expression_yields_its_value(source, value):
    assert evaluated(source) == value


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("gpus.cuont > 1", "unknown fact path gpus.cuont (did you mean count?)"),
        (
            "driver.loaded.verison is version('1')",
            "unknown fact path driver.loaded.verison (did you mean version?)",
        ),
        (
            "gpus.devices | selectattr('pcie.widht_now', '<', 16) | list | length > 0",
            "unknown fact path gpus.devices[*].pcie.widht_now (did you mean width_now?)",
        ),
        ("gpsu.count > 1", "unknown name 'gpsu' (did you mean gpus?)"),
        (
            "driver.loaded.version is version('abc')",
            "bad version literal: 'abc' is not a driver version",
        ),
        ("driver.loaded.version is version('1', '~')", "'~' is not an operator"),
        ("gpus.model is version('1')", "give version_type="),
        (
            "gpus.model is version('1', version_type='drivr')",
            "version_type='drivr' is unknown (did you mean driver?)",
        ),
        ("driver.loaded.version is version(kernel.release)", "versions of two types"),
        ("driver.loaded.version > '535'", "versions have an order of their own"),
        ("gpus.count == '2'", "different kinds"),
        ("driver.loaded.flavour == 'opne'", "never 'opne' (did you mean open?)"),
        ("driver.loaded.flavour in ['open', 'closed']", "never 'closed'"),
        ("gpus.devices == 2", "name one of its fields"),
        ("gpus.devices.uuid == 'x'", "use selectattr or map"),
        ("gpus.count is defined", "there is no test 'defined': ask 'is known'"),
        ("gpus.count == none", "'none' is not allowed"),
        ("gpus.count | default(0) > 1", "default is for policy keys alone"),
        ("gpus.model | regex_search('a+')", "there is no filter 'regex_search'"),
        ("gpus.devices | lenght > 1", "there is no filter 'lenght' (did you mean length?)"),
        ("gpus.count and gpus.count > 1", "need yes or no"),
        ("range(10) | length > 1", "calls are not allowed"),
        ("gpus.model.upper() == 'X'", "calls are not allowed"),
        ("''.__class__ == 'x'", "'__class__' not allowed"),
        ("gpus['__class__'] == 'x'", "'__class__' not allowed"),
        ("'a' * 10 == 'b'", "needs numbers"),
        ("2 ** 100 > 1", "** is not allowed"),
        ("9999999999999999999999 > 1", "too large"),
        ("'" + "x" * 2000 + "' == gpus.model", "too large"),
        ("gpus.model[0:2] == 'NV'", "slices are not allowed"),
        ("{'a': 1} == 1", "map literals are not allowed"),
        ("gpus.count >", "syntax:"),
        ("gpus.count > 1 }} {{ 1", "after the expression"),
        ("gpus.count > 1 gpus", "after the expression"),
        ("not " * 200 + "true", "nests too deeply"),
        ("(" * 900 + "1" + ")" * 900, "nests too deeply"),
        ("true or " * 800 + "true", "characters long"),
    ],
)
def test_what_is_refused_is_refused_with_the_place_and_a_hint(source, message):
    with pytest.raises(ExpressionError) as problem:
        compile_expression(source, node_names(TABLES))
    assert message in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for x in gpus.devices %}{% endfor %}", "{% while true %}",
        "{% macro m() %}{% endmacro %}", "{% set x = 1 %}", "{% include 'x' %}",
        "{{ range(9) }}", "{{ x }", "{% if true %}a{% endif %}", "{{ gpus }}", "{{ gpus.devices }}",
        "{{ self }}", "{{ ''.__class__ }}",
    ],
)  # fmt: skip
def test_a_template_quotes_values_and_nothing_else(source):
    with pytest.raises(ExpressionError):
        compile_template(source, node_names({}))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "held by 1 process on 1 GPU"),
        (2, "held by 2 processes on 2 GPUs"),
        (11, "held by 11 processes on 11 GPUs"),
    ],
)
def test_one_of_something_is_named_in_the_singular(count, text):
    template = compile_template(
        "held by {{ gpus.count }} processes on {{ gpus.count }} GPUs", node_names({})
    )
    world = node_world(example_node({"gpus": {"probe": OK, "count": count}}), catalogue_view())
    assert plain(template.evaluate(world)) == text


NO_ECC = {"field": "devices[*].ecc", "status": "absent", "reason": "NVML_ERROR_NOT_SUPPORTED"}
UNREAD = {
    "driver": {"probe": {"status": "timeout", "error": "modinfo did not answer"}},
    "gpus": {"probe": OK, "devices": [{"index": 0}], "count": None},
}


@pytest.mark.parametrize(
    ("source", "path", "status"),
    ROWS["test_nothing_can_be_decided_on_what_was_not_read"],
)
def test_nothing_can_be_decided_on_what_was_not_read(source, path, status):
    with pytest.raises(Undecided) as problem:
        evaluated(source, UNREAD)
    cause = problem.value.causes[0]
    assert (cause.kind, cause.path, cause.status) == ("unread", path, status)
    assert cause.reason


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("gpus.count is known", False),
        ("gpus.count is unknown", True),
        ("gpus.devices is known", True),
        ("driver.loaded.version is not known", True),
        ("gpus.devices | map(attribute='uuid') | known | length", 0),
        ("driver.probe.status == 'timeout'", True),
        ("gpus.count > 1 and false", False),
        ("false and gpus.count > 1", False),
        ("gpus.count > 1 or true", True),
        ("gpus.devices | length == 1 or gpus.count > 1", True),
    ],
)
def test_what_does_not_depend_on_the_unread_fact_is_still_decided(source, value):
    assert evaluated(source, UNREAD) == value


@pytest.mark.parametrize(
    ("source", "facts"),
    [
        ("gpus.count > 1", {"gpus": {"probe": {"status": "absent", "error": "no driver"}}}),
        ("gpus.devices | selectattr('ecc.enabled') | list | length > 0",
         {"gpus": {"probe": {**OK, "unread": [NO_ECC]}, "devices": [{"index": 0}]}}),
        ("driver.loaded.version is version(policy.driver.version, '!=')", {}),
        ("policy.nvlink.links_per_gpu > 1", {}),
        ("(gpus.devices | first).index == 0", {"gpus": {"probe": OK, "devices": []}}),
        ("nccl.effective.ssh.NCCL_ALGO == 'Tree'", {"nccl": {"probe": OK,
        "effective": {"ssh": {}}}}),
        ("tables.xids['999'].immediate == 'RESET_GPU'", {}),
    ],
)  # fmt: skip
def test_what_the_node_does_not_have_and_the_policy_does_not_say_is_no_matter_for_the_rule(
    source, facts
):
    with pytest.raises(Undecided) as problem:
        evaluated(source, {**sections(), **facts})
    assert problem.value.is_skip


def test_a_value_beside_an_absent_section_is_still_a_value():
    facts = {"gpus": {"probe": {"status": "absent", "error": "no driver"}, "pci_count": 4}}
    assert evaluated("gpus.pci_count > 0", facts) is True


@pytest.mark.parametrize(
    "hostile",
    [
        "{{ 7*7 }}",
        "{% for x in y %}",
        "\x1b[2J<script>",
        "'; drop",
        "__class__",
        "{{ ''.__class__ }}",
    ],
)
def test_what_a_node_says_is_never_a_template(hostile):
    facts = {"gpus": {"probe": OK, "model": hostile}}
    assert evaluated("gpus.model", facts) == hostile
    template = compile_template("model {{ gpus.model }}", node_names({}))
    text = plain(template.evaluate(node_world(example_node(facts), catalogue_view())))
    assert text == "model " + hostile.replace("\x1b", "\\x1b")
    assert text.isprintable()


def test_a_template_says_what_it_does_not_know():
    template = compile_template("{{ gpus.count }} and {{ gpus.count + 1 }}", node_names({}))
    text = plain(template.evaluate(node_world(example_node(UNREAD), catalogue_view())))
    assert (
        text
        == "not known (the node gave no value and no reason) and not known (the node gave no value"
        " and no reason)"
    )


def test_a_text_that_grows_is_stopped():
    with pytest.raises(RuleStopped):
        evaluated(
            " ~ ".join(["gpus.model"] * 100) + " == 'x'",
            {"gpus": {"probe": OK, "model": "x" * 4000}},
        )


def test_division_by_nothing_is_no_verdict():
    with pytest.raises(Undecided):
        evaluated("1 / (gpus.count - 2) > 1")
