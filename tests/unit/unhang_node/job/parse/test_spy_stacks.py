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
    with pytest.raises(ValueError, match=r"did not print|Expecting|nested too deeply"):
        parse_spy(text)


def test_hostile_frames_become_nothing():
    assert parse_spy('[1, {"frames": 5}, {"frames": [2, {"name": null, "line": "x"}]}]')[1][
        "frames"
    ] == ["None (?:0)"]


def dump(*frames):
    """One main thread; each frame: its variables by name."""
    rows = [
        {"name": "f", "filename": "a.py", "line": 1, "locals": [
            {"name": name, "repr": shown} for name, shown in frame.items()
        ]} for frame in frames
    ]  # fmt: skip
    return json.dumps([{"pid": 7, "os_thread_id": 7, "frames": rows}])


def test_item_is_what_the_variables_of_a_reader_tell():
    """As py-spy shows a worker of torch's DataLoader that reads a file."""
    [thread] = parse_spy(
        dump(
            {"self": "<Images at 0x7f1b8f3ca560>", "path": '"/data/7.tar"', "token": '"hf_x"'},
            {"path": '"/data/other"', "self": "<Images at 0x7f1b8f3ca560>", "idx": "6"},
            {"possibly_batched_index": "[6, 7]", "auto_collation": "True"},
        )
    )
    assert thread["item"] == ['path "/data/7.tar"', "idx 6", "batch [6, 7]"]


@pytest.mark.parametrize(
    "frame",
    [
        {"token": '"hf_x"', "password": '"x"', "self": "<D at 0x7>", "key": '"x"'},
        {"path": "<PosixPath at 0x7f1b>", "index": "None"},
        {"pathological": '"x"', "items": "[1]"},
    ],
)
def test_other_variables_are_not_read(frame):
    [thread] = parse_spy(dump(frame))
    assert "item" not in thread


def test_hostile_variables_are_no_item():
    text = dump({"path": '"' + "x" * 5000})
    [thread] = parse_spy(text)
    assert len(thread["item"][0]) < 200
    for values in ("5", '[1, {"name": 5, "repr": "1"}, {"name": "path"}]'):
        frames = f'[{{"name": "f", "locals": {values}}}]'
        rows = f'[{{"pid": 7, "os_thread_id": 7, "frames": {frames}}}]'
        assert "item" not in parse_spy(rows)[0]
