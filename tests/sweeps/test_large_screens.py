"""The first screen of ten thousand nodes is one screen."""

from __future__ import annotations

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
