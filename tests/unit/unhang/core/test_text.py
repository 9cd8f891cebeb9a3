"""Text from nodes is made safe to show."""

from __future__ import annotations

import unicodedata

import hostile
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.core.text import CUT_AT, ascii_only, plain_value, visible


@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=hostile.TEXTS.keys())
def test_hostile_text_becomes_one_printable_line(text):
    shown = visible(text)
    assert shown.isprintable()
    assert len(shown) <= CUT_AT * 10 + 40
    shown.encode("utf-8")


@given(st.text())
def test_any_text_becomes_printable_and_stays_itself_where_it_was(text):
    shown = visible(text, 10_000)
    assert shown.isprintable()
    if text.isprintable() and not any(
        unicodedata.category(letter) in ("Mn", "Me") for letter in text
    ):
        assert shown == text


def test_a_cut_text_says_how_long_it_was():
    assert visible("A" * 5000).endswith("… (cut, 5,000 characters)")


def test_an_escape_is_shown_and_not_obeyed():
    assert visible("\x1b[31m\u202e\U000e0041") == "\\x1b[31m\\u202e\\U000e0041"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        ("535.104.05", "535.104.05"),
        ({"a": [1]}, '{"a": [1]}'),
        (float("nan"), "NaN"),
    ],
)
def test_facts_are_shown_as_a_person_reads_them(value, shown):
    assert plain_value(value) == shown


def test_the_usual_signs_have_a_plain_form():
    assert ascii_only("4 × gpu… → µs") == "4 x gpu... -> us"
    assert ascii_only("Ω").isascii()
