"""Slurm's node sets become host names before Ansible sees them; Ansible's own patterns are not
changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.core.errors import UserError
from unhang.core.nodeset import MAX_HOSTS, expand_limit


@pytest.mark.parametrize(
    ("limit", "patterns"),
    [
        ("gpu[001-003]", ["gpu001", "gpu002", "gpu003"]),
        ("gpu[1-2,7]", ["gpu1", "gpu2", "gpu7"]),
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[001-003],login", ["gpu001", "gpu002", "gpu003", "login"]),
        ("gpu[0-6/3]", ["gpu0", "gpu3", "gpu6"]),
        ("gpu[1-4]!gpu3", ["gpu1", "gpu2", "gpu4"]),
        ("training,!gpu[2-3]", ["training", "!gpu2", "!gpu3"]),
        ("training,&gpu[2-3].x", ["training", r"&~^(?:gpu2\.x|gpu3\.x)$"]),
        ("a:gpu[1-2]:!gpu[2-3]", ["a", "gpu1", "gpu2", "!gpu2", "!gpu3"]),
        ("gpu*", ["gpu*"]),
        ("training:!spare", ["training:!spare"]),
        ("~gpu[0-9]+", ["~gpu[0-9]+"]),
        ("!~gpu[0-9]+", ["!~gpu[0-9]+"]),
        (" a , b ,", ["a", "b"]),
    ],
)
def test_a_limit_becomes_patterns_for_ansible(limit, patterns):
    assert expand_limit(limit) == patterns


@pytest.mark.parametrize("limit", ["gpu[1-", "gpu[a-b]", "gpu[3-1]", "gpu[]", "gpu]1["])
def test_a_bracket_that_is_no_node_set_is_refused_with_an_example(limit):
    with pytest.raises(UserError, match=r"is not a node set such as gpu\[001-016\]"):
        expand_limit(limit)


@pytest.mark.parametrize("limit", ["gpu[1-999999999]", f"gpu[1-{'9' * 400}]", "r[1-9999]n[1-9999]"])
def test_a_limit_without_end_is_refused_before_it_fills_memory(limit):
    with pytest.raises(UserError, match=f"more than {MAX_HOSTS}"):
        expand_limit(limit)


@given(st.text(alphabet="gpu01239[]-,!&:~/ *^@", max_size=30))
def test_no_bracket_reaches_ansible_but_in_a_regular_expression(limit):
    try:
        patterns = expand_limit(limit)
    except UserError:
        return
    assert all("[" not in pattern or pattern.lstrip("!&").startswith("~") for pattern in patterns)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "gpu" + "[1-2]" * 200_000,
        "gpu" + "[" * 100_000 + "1" + "]" * 100_000,
        "a[1" * 9,
        "]" * 100_000 + "[",
    ],
)
def test_brackets_without_end_are_refused_at_once(text):
    with pytest.raises(UserError, match=r"more than|is not a node set") as refused:
        expand_limit(text)
    assert len(str(refused.value)) < 600
