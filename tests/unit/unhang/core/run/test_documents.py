"""Node files: read strictly; a fault is reported with its path and the expected type."""

from __future__ import annotations

import json

import pytest
from judge_cases import OK, node, sections

from unhang.core.run.documents import (
    MAX_NODE_BYTES,
    InvalidNode,
    decode_node,
    to_facts,
    to_fragment,
)


def encoded(document) -> bytes:
    return json.dumps(document).encode()


def test_a_good_file_yields_typed_facts():
    found = decode_node(encoded(node("a1")))
    assert (found.host, found.groups, found.status) == ("a1", ("all", "gpu"), "ok")
    assert found.sections.gpus.devices[1].pcie.width_max == 16
    assert found.sections.network is None


@pytest.mark.parametrize("indent", [None, 2])
def test_the_order_and_the_spacing_of_keys_do_not_matter(indent):
    document = dict(reversed(list(node("a1").items())))
    assert (
        decode_node(json.dumps(document, indent=indent).encode()).sections.driver.loaded.version
        == "535.154.05"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": {"probe": OK, "count": "8"}}, "facts.sections.gpus.count: Expected int"),
        (
            {
                "gpus": {
                    "probe": OK,
                    "devices": [{"index": 0}, {"index": 1, "pcie": {"width_now": []}}],
                }
            },
            "facts.sections.gpus.devices[1].pcie.width_now: Expected int",
        ),
        ({"gpus": {"probe": OK, "devices": [{"uuid": "GPU-1"}]}}, "missing required field index"),
        ({"gpus": {"count": 8}}, "missing required field probe"),
        ({"gpus": {"probe": {"status": "fine"}}}, "Invalid enum value 'fine'"),
        (
            {"gpus": {"probe": OK, "cuont": 8}},
            "facts.sections.gpus: Object contains unknown field cuont",
        ),
        ({"gpsu": {"probe": OK}}, "unknown field gpsu"),
        (
            {"gpus": {"probe": OK, "model": "x" * 5000}},
            "facts.sections.gpus.model: Expected str of length <= 4096",
        ),
        (
            {"gpus": {"probe": OK, "devices": [{"index": 0}] * 200}},
            "facts.sections.gpus.devices: Expected array of length <= 128",
        ),
        ({"gpus": 5}, "facts.sections.gpus: Expected object"),
    ],
)
def test_a_wrong_type_is_named_with_its_path(change, message):
    with pytest.raises(InvalidNode) as problem:
        decode_node(encoded(node("a1", {**sections(), **change})))
    assert message in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (encoded(node("a1"))[:-500], "not valid JSON"),
        (b"[]", "this must be an object, and is list"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nest too deeply"),
        (encoded({**node("a1"), "more": 1}), "the key 'more' is unknown"),
        (encoded({**node("a1"), "status": "great"}), "status must be one of ok, unreachable"),
        (encoded({**node("a1"), "schema": "unhang/node/9"}), "schema must be 'unhang/node/1'"),
        (encoded({**node("a1"), "groups": "gpu"}), "groups must be a list"),
        (encoded({**node("a1"), "facts": None}), "status is ok, but facts is null"),
        (encoded(node("a1")).replace(b'"count": 2', b'"count": NaN'), "NaN is not a number"),
        (
            encoded(node("a1")).replace(b'"count": 2', b'"count": -Infinity'),
            "-Infinity is not a number",
        ),
        (
            encoded(node("a1")).replace(
                b'"status": "ok", "message"', b'"status": "ok", "status": "ok", "message"'
            ),
            "the key 'status' occurs twice",
        ),
        (encoded(node("a1"))[:-1] + b', "facts": null}', "the key 'facts' occurs twice"),
        (
            encoded({key: value for key, value in node("a1").items() if key != "groups"}),
            "the key 'groups' is missing",
        ),
        (b" " * (MAX_NODE_BYTES + 1), "bytes long, at most"),
    ],
)
def test_a_file_that_is_no_node_document_says_why(data, message):
    with pytest.raises(InvalidNode) as problem:
        decode_node(data)
    assert message in str(problem.value)
    assert str(problem.value).isprintable()
    assert len(str(problem.value)) < 500


def test_a_hostile_key_is_told_without_its_control_characters():
    with pytest.raises(InvalidNode) as problem:
        decode_node(encoded(node("a1", {"\x1b[2J" + "x" * 9000: 1})))
    assert str(problem.value).isprintable()
    assert len(str(problem.value)) < 500


def test_sixteen_gpus_are_as_good_as_eight():
    facts = sections()
    facts["gpus"]["devices"] = [{"index": number, "uuid": f"GPU-{number}"} for number in range(16)]
    assert len(decode_node(encoded(node("a1", facts))).sections.gpus.devices) == 16


def test_an_example_needs_no_required_keys_but_right_types():
    assert to_fragment({"gpus": {"devices": [{"uuid": "x"}]}}).gpus.devices[0].uuid == "x"
    with pytest.raises(InvalidNode, match=r"gpus\.count"):
        to_fragment({"gpus": {"count": "8"}})


def test_facts_alone_are_checked_as_strictly():
    with pytest.raises(InvalidNode, match="facts"):
        to_facts({"schema": "unhang/node-facts/1", "sections": {}})
