"""The first screen of ten thousand nodes is one screen."""

from __future__ import annotations

import re

import pytest
from scattered_fleet import fleet

from unhang.audit.report.screen import LINES, render_screen
from unhang.core.run.actions import Setting


@pytest.mark.parametrize("width", [80, 132])
def test_ten_thousand_nodes_are_one_screen(width):
    lines = render_screen(
        fleet(10_000, 12, 120, 900),
        width,
        setting_of=lambda cause: Setting(list_file="runs/latest/limits/a-cause.txt"),
    ).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= width


def test_no_set_of_ten_thousand_nodes_is_broken_inside_a_number():
    sets = re.findall(r"gpu\[[^\]]*\]", render_screen(fleet(10_000, 12, 20, 900), 80))
    assert len(sets) > 10
    assert {len(number) for one in sets for number in re.findall(r"\d+", one)} == {5}
