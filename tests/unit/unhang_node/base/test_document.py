"""The rules of every document: plain JSON, clean text, at most one mebibyte."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang_node.base.document import LIMIT_BYTES, clean_text, clean_value, cut_to_size, encode

ANY_TEXT = st.text(st.characters(), max_size=200)
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ANY_TEXT, inner, max_size=5),
    max_leaves=30,
)


@settings(deadline=None)
@given(ANY_VALUE)
def test_whatever_was_read_becomes_strict_json_in_clean_utf8(value):
    text = encode(clean_value(value))
    text.encode("utf-8")
    again = json.loads(text, parse_constant=pytest.fail)
    assert again == clean_value(again)


@settings(deadline=None)
@given(ANY_TEXT)
def test_clean_text_is_printable_and_one_line(text):
    assert clean_text(text).isprintable()
    assert len(clean_text(text)) == min(len(text), 4096)


@pytest.mark.parametrize(
    "evil", ["\x1b[2J\x1b]0;title\x07", "a\nb", "\u202etxt.exe", "\ud800", "\x9b31m", "\x00"]
)
def test_no_control_sequence_survives(evil):
    assert clean_text(evil).isprintable()
    assert clean_value({evil: [evil]}) == {clean_text(evil): [clean_text(evil)]}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 2**64, -(2**64)])
def test_numbers_that_json_has_not_become_null_and_are_named(number):
    refused = []
    assert clean_value({"devices": [{"power_w": number}]}, "", refused) == {
        "devices": [{"power_w": None}]
    }
    assert refused == ["devices[0].power_w"]


def test_values_are_left_as_they_are_otherwise():
    value = {"a": [1, -1, 2**64 - 1, 0.5, "é", True, None, {"b": []}]}
    assert clean_value(value) == value


def test_depth_is_bounded():
    value = []
    for _ in range(5000):
        value = [value]
    assert len(encode(clean_value(value))) < 200


def document(**sections):
    return {
        "schema": "unhang/node-facts/1",
        "collector": {"version": "1", "cut": []},
        "sections": sections,
    }


def test_a_document_that_fits_is_not_cut():
    small = document(node={"probe": {"status": "ok"}, "runtimes": ["a"] * 100})
    assert cut_to_size(small)["collector"]["cut"] == []
    assert small["sections"]["node"]["runtimes"] == ["a"] * 100


def test_the_largest_lists_are_cut_and_named():
    rows = [{"line": "x" * 4000, "count": number} for number in range(2000)]
    big = cut_to_size(
        document(
            faults={"probe": {"status": "ok"}, "events": rows},
            node={"probe": {"status": "ok"}, "runtimes": ["docker"]},
        )
    )
    assert len(encode(big)) <= LIMIT_BYTES
    assert big["collector"]["cut"] == ["faults.events"]
    assert big["sections"]["faults"]["events"][0]["count"] == 0
    assert len(big["sections"]["faults"]["events"]) >= 100
    assert big["sections"]["node"]["runtimes"] == ["docker"]


def test_the_inner_list_is_cut_when_it_is_what_weighs():
    rdma = [{"name": "mlx5_0", "ports": ["y" * 4000] * 1000}, {"name": "mlx5_1", "ports": []}]
    big = cut_to_size(document(network={"probe": {"status": "ok"}, "rdma": rdma}))
    assert [row["name"] for row in big["sections"]["network"]["rdma"]] == ["mlx5_0", "mlx5_1"]
    assert big["collector"]["cut"] == ["network.rdma[0].ports"]
    assert len(encode(big)) <= LIMIT_BYTES


def test_nan_never_leaves():
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"a": math.nan})


def test_a_section_that_no_shorter_list_makes_fit_is_left_out_and_says_so():
    parameters = {f"name_{number}": "x" * 4000 for number in range(400)}
    big = cut_to_size(
        document(
            driver={"probe": {"status": "ok"}, "parameters": parameters},
            node={"probe": {"status": "ok"}, "hostname": "n1"},
        )
    )
    assert len(encode(big)) <= LIMIT_BYTES
    assert big["sections"]["driver"]["probe"]["status"] == "error"
    assert big["sections"]["driver"]["probe"]["error"].startswith("left out: 16")
    assert big["sections"]["node"]["hostname"] == "n1"
