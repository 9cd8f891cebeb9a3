"""The first steps of an undecided answer look at what decided the report: at least as often as when their order was set by these reports."""

from __future__ import annotations

from next_step_scores import ASKS, ROWS, shares, undecided_answers

from unhang.core import catalogue

LEAST = (0.38, 0.66, 0.75, 0.8)


def test_what_decided_is_among_the_first_steps():
    found = shares(list(undecided_answers()))
    assert all(share >= least for share, least in zip(found, LEAST, strict=True)), found


def test_each_row_has_what_it_looks_at():
    rows = catalogue.table("next_steps")
    assert {row["asks"] for row in rows.values()} == ASKS.keys()
    assert ROWS.keys() <= {row["id"] for row in rows.values()}
