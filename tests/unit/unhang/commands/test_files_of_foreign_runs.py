"""`unhang audit --via files` of a run whose run.json has other types than a run: refused by the same
schema as in `judge`, without a new run."""

from __future__ import annotations

import json

import pytest

from unhang.cli import main

WHOLE = {
    "schema": "unhang/run/1",
    "started": "2026-11-20T07:00:00Z",
    "finished": "2026-11-20T07:01:00Z",
    "hosts": [],
}


@pytest.mark.parametrize(
    "odd",
    [
        {"policy_sources": [["x"]]},
        {"policy_sources": 7},
        {"inventory": [{"x": 1}]},
        {"inventory": {"x": 1}},
        {"started": ["x"]},
        {"hosts": "gpu001"},
        {"hosts": None},
        {"options": [1]},
        {"more": 1},
    ],
    ids=str,
)
def test_a_run_of_wrong_types_is_refused_and_named(tmp_path, capsys, odd):
    for name, change in (("20261120T070000Z-aaaaaaaaaa", {}), ("20261120T070001Z-bbbbbbbbbb", odd)):
        (tmp_path / name / "nodes").mkdir(parents=True)
        (tmp_path / name / "run.json").write_text(json.dumps({**WHOLE, "id": name, **change}))
    before = sorted(tmp_path.iterdir())
    assert main(["audit", "--via", "files", "--out", str(tmp_path), *map(str, before)]) == 2
    said = capsys.readouterr().err
    assert f"{before[1] / 'run.json'}: {next(iter(odd))}" in said
    assert "fault" not in said
    assert sorted(tmp_path.iterdir()) == before
