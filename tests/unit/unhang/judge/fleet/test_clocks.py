"""When nodes were read: against the controller's clock, and against each other."""

from __future__ import annotations

import pytest

from unhang.core.run.documents import NodeDocument
from unhang.judge.fleet.clocks import clock_ahead_s, collected_long_before

RUN = {"started": "2026-11-29T10:00:00Z", "finished": "2026-11-29T10:02:00+00:00"}


def node(at, is_live=True):
    return NodeDocument("n", (), {}, "ok", None, None, (), at, is_live)


@pytest.mark.parametrize(
    ("at", "ahead_s"),
    [
        ("2026-11-29T10:01:00Z", 0),
        ("2026-11-29T10:12:00Z", 600),
        ("2026-11-29T09:59:00Z", -60),
        ("2026-11-29T10:12:00", None),
        ("", None),
        ("no time", None),
    ],
)
def test_a_clock_is_as_far_off_as_it_is_outside_of_the_run(at, ahead_s):
    assert clock_ahead_s(node(at), RUN) == ahead_s
    assert clock_ahead_s(node(at, is_live=False), RUN) is None
    assert clock_ahead_s(node(at), {**RUN, "finished": None}) is None


def test_nodes_of_another_day_are_named():
    collected = {"a": "2026-11-29T10:01:00Z", "b": "2026-11-27T10:00:00Z", "c": "", "d": "x"}
    assert collected_long_before(collected) == ["b"]
    assert collected_long_before({"b": collected["b"], "c": ""}) == []
