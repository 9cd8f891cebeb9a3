"""py-spy's JSON becomes threads, the main thread first."""

from __future__ import annotations

import json

import pytest

from unhang_node.job.parse.spy_stacks import parse_spy


def test_the_main_thread_comes_first():
    rows = [
        {"pid": 7, "os_thread_id": 8, "thread_name": "loader", "frames": []},
        {
            "pid": 7,
            "os_thread_id": 7,
            "thread_name": None,
            "active": True,
            "frames": [{"name": "step", "filename": "/home/u/train.py", "line": 88}],
        },
    ]
    found = parse_spy(json.dumps(rows))
    assert found[0] == {
        "name": None,
        "is_main": True,
        "active": True,
        "frames": ["step (/home/u/train.py:88)"],
    }
    assert [thread["name"] for thread in found] == [None, "loader"]


@pytest.mark.parametrize("text", ["", "{}", "[" * 9000, "no json"])
def test_other_output_is_refused(text):
    with pytest.raises(ValueError, match=r"expected|Expecting|nested too deeply"):
        parse_spy(text)


def test_hostile_frames_become_nothing():
    assert parse_spy('[1, {"frames": 5}, {"frames": [2, {"name": null, "line": "x"}]}]')[1][
        "frames"
    ] == ["None (?:0)"]
