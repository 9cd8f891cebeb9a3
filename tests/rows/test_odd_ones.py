"""Where rows repeat, the one that differs is named with what differs, and no healthy table or set
of stacks has one."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_diagnosis import diagnose

from unhang.core.strict_yaml import load_yaml
from unhang.core.verdict.answer import screen_of
from unhang.core.verdict.screen import render_screen
from unhang.jobs.diagnose.answer import answer_of

FILES = sorted((Path(__file__).parents[1] / "fixtures").glob("diagnose_odd_ones/*.yml"))
ROWS = [row for path in FILES for row in load_yaml(path)[0]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row_that_differs_is_named_or_nothing_is(tmp_path, row):
    for name, text in row["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    document = diagnose([str(tmp_path)])
    screen = render_screen(screen_of(answer_of(document)), 200)  # whatever is named has one
    assert all(text in screen for text in row.get("screen", ()))
    assert not any(text in screen for text in row.get("never", ()))
    assert row.get("outcome", "") in document["outcome"]["word"]
    causes = document["causes"]
    named = [one for one in causes if one["severity"] != "info"]
    if row["cause"] is None:
        told = causes if row.get("remarks") == "none" else named
        assert [(one["cause"], one["evidence"][0]["says"]) for one in told] == []
        return
    assert named and named[0]["cause"] == row["cause"]
    said = [one["says"] for one in named[0]["evidence"] if one["line"] > 0]
    assert any(all(text in one for text in row["says"]) for one in said)
    assert named[0]["certainty"] in row.get("certainty", "possible or likely")
    assert document["next"]["command"].startswith(row.get("next", ""))


def test_healthy_rows_are_as_many_as_broken_ones():
    healthy = [row for row in ROWS if row["cause"] is None]
    assert 0.8 <= len(healthy) / (len(ROWS) - len(healthy)) <= 1.25
