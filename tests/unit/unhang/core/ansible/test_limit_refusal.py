"""Which --limit of plain ansible-playbook is a node set, and what is to be written instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.core.ansible.limit_refusal import limit_refusal, translated


@pytest.mark.parametrize(
    "limit",
    [
        "",
        "gpu001,login",
        "all:!spare",
        "web[0]",
        "web[0:3]",
        "web[-1]",
        "gpu[12]*",
        "gpu0[0-9]*",
        "~gpu[0-9]+",
        "&~^(?:a[1-2])$",
        "@hosts",
        "gpu[a-b]",
    ],
)
def test_what_ansible_itself_understands_passes(limit):
    assert limit_refusal(limit) == ""
    assert translated(limit) == limit.replace("all:", "all,")


@pytest.mark.parametrize(
    ("limit", "hosts"),
    [
        ("gpu[001-003]", "gpu001,gpu002,gpu003"),
        ("gpu[1,7]", "gpu1,gpu7"),
        ("training:!gpu[1-2],web[0]", "training,!gpu1,!gpu2,web[0]"),
        ("r[1-2]n[1-2].x", "r1n1.x,r1n2.x,r2n1.x,r2n2.x"),
    ],
)
def test_a_node_set_is_refused_with_its_hosts(limit, hosts):
    assert limit_refusal(limit).endswith(f"; write --limit '{hosts}'")


def test_a_set_without_end_and_one_that_is_too_long_for_a_line_are_told_otherwise():
    assert "more than 100000" in limit_refusal("gpu[1-999999999]")
    assert "into a file, one a line, and --limit @FILE" in limit_refusal("gpu[0001-0900]")


@given(st.text(alphabet="gpu0129[]-,!&:~/ *^@\x1b", max_size=30))
def test_whatever_is_typed_has_an_answer_of_one_line(limit):
    assert limit_refusal(limit).isprintable()
