"""The few rows that differ from all others are named with what differs; rows that are not alike
have none."""

from __future__ import annotations

import pytest

from unhang.core.verdict.odd_one_out import Odd, odd_ones_out


def rows(**columns):
    """Rows a, b, c … of columns that are given as lists."""
    number = len(next(iter(columns.values())))
    return {
        "abcdefgh"[place]: {name: values[place] for name, values in columns.items()}
        for place in range(number)
    }


def test_row_that_differs_is_named_with_its_value_and_that_of_the_others():
    found = odd_ones_out(rows(state=["up", "up", "down", "up"], size=[8, 8, 8, 8]))
    assert found == [Odd("c", {"state": ("down", "up")})]


def test_numbers_within_the_tolerance_agree():
    watts = rows(watt=[100.0, 104.0, 97.0, 60.0, 101.0])
    assert [one.row for one in odd_ones_out(watts, {"watt": 5.0})] == ["d"]
    assert odd_ones_out(watts, {"watt": 50.0}) == []
    assert odd_ones_out(watts) == []


@pytest.mark.parametrize(
    "values",
    [
        ["up", "down"],
        ["up", "up", "down"],
        ["up", "up", "down", "down"],
        ["up", "up", "up", "down", "left"],
        ["up"] * 4,
        ["up", "down", "left", "right"],
    ],
)
def test_without_a_clear_majority_nothing_is_odd(values):
    assert odd_ones_out(rows(state=values)) == []


def test_two_of_eight_may_differ_each_in_its_own_way():
    found = odd_ones_out(rows(state=["up", "off", "up", "up", "up", "up", "down", "up"]))
    assert [(one.row, one.differs["state"][0]) for one in found] == [("b", "off"), ("g", "down")]


def test_where_most_columns_vary_from_row_to_row_nothing_is_odd():
    same = {"state": ["up", "up", "up", "down"]}
    assert odd_ones_out(rows(**same, load=[1, 2, 3, 4], watt=[5, 6, 7, 8])) == []
    assert len(odd_ones_out(rows(**same, load=[1, 2, 3, 4], watt=[5] * 4))) == 1


def test_unknown_value_neither_agrees_nor_differs():
    assert odd_ones_out(rows(state=["up", "up", "up", None])) == []
    assert odd_ones_out(rows(state=["up", "up", None, "down"])) == []


def test_row_may_lack_a_column():
    found = odd_ones_out({"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}, "d": {"x": 2}, "e": {}})
    assert [one.row for one in found] == ["d"]
