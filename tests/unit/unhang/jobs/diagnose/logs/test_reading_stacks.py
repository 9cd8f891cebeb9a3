"""Stacks in a log are read whichever tool printed them, and each is given to its rank or process."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from unhang.core.verdict.activities import MAIN
from unhang.jobs.diagnose.logs.reading import Input, read_blocks
from unhang.jobs.diagnose.logs.stacks import MOST_FRAMES, Stacks, by_thread

FRAMES = "    wait (threading.py:359)\n    fetch (corpus/read.py:12)\n    <module> (train.py:9)\n"
CALLS = [
    "wait (/lib/python3.0/threading.py:359)",
    "fetch (/corpus/read.py:12)",
    "<module> (/train.py:9)",
]
SPY = 'Process {pid}: python train.py{options}\nPython v3.12.3 (/usr/bin/python3)\n\nThread {pid} (idle): "MainThread"\n'
FAULT = (
    'Current thread 0x00007f21c7d4a740 (most recent call first):\n  File "/srv/read.py", line 12 in'
    ' fetch\n  File "/srv/train.py", line 9 in <module>\n'
)


def found(text, rank_of_file=None):
    stacks = Stacks("job.log", rank_of_file)
    for block in read_blocks(io.BytesIO(text.encode()), Input("job.log")):
        stacks.note(block, block.whole())
    return stacks.done()


def named(text, rank_of_file=None):
    return {name: one.calls for name, one in by_thread(found(text, rank_of_file))[MAIN].items()}


@pytest.mark.parametrize(
    ("before", "name"),
    [
        (SPY.format(pid=41, options=""), "process 41"),
        (SPY.format(pid=41, options=" --local-rank=3"), "rank 3"),
        (SPY.format(pid=41, options=" --node_rank 1 --rank 3"), "rank 3"),
        ("$ py-spy dump --pid 41   # rank 3\n" + SPY.format(pid=41, options=""), "rank 3"),
        ('Thread 41 (active+gil): "MainThread"\n', "process 41"),
        ('=== gpu07 rank 3\nThread 0x29 (active): "MainThread"\n', "rank 3"),
        ("rank 3:\n", "rank 3"),
        ("rank 3 stands here (py-spy):\n\n", "rank 3"),
    ],
)
def test_rank_or_process_of_a_stack_is_read_from_what_stands_above_it(before, name):
    assert named(before + FRAMES) == {name: CALLS}


def test_file_s_rank_is_that_of_a_stack_and_a_heading_goes_before_it():
    assert list(named(SPY.format(pid=41, options="") + FRAMES, 5)) == ["rank 5"]
    assert list(named("rank 3:\n" + FRAMES, 5)) == ["rank 3"]


def test_heading_for_several_ranks_gives_the_stack_to_each():
    assert list(named("Ranks 1 to 3, 7 stand here (py-spy):\n" + FRAMES)) == [
        f"rank {rank}" for rank in (1, 2, 3, 7)
    ]


def test_faulthandler_s_stacks_of_ranks_in_one_log_may_be_mixed():
    lines = FAULT.splitlines()
    mixed = "".join(f"[rank{rank}]: {line}\n" for line in lines for rank in (0, 1))
    assert named(mixed) == {
        f"rank {rank}": ["fetch (/srv/read.py:12)", "<module> (/srv/train.py:9)"] for rank in (0, 1)
    }


def test_traceback_s_order_is_turned_round_below_a_heading():
    text = 'rank 2:\n\n  File "a.py", line 1, in run\n  File "b.py", line 2, in step\n'
    assert named(text) == {"rank 2": ["step (/b.py:2)", "run (/a.py:1)"]}


def test_traceback_and_lines_of_a_log_are_no_stacks():
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in run\nValueError: x\n'
        "[rank1] step 3 (train.py:88)\n    helped (train.py:9)\n"
    )
    assert found(text) == []


def test_other_threads_and_variables_are_told_apart_from_the_main_thread_s_calls():
    text = (
        SPY.format(pid=41, options="")
        + "    wait (threading.py:359)\n        Arguments:\n            self: <Lock at 0x7f>\n"
        + '    <module> (train.py:9)\nThread 42 (idle): "Saver_0"\n    save (store.py:4)\n'
    )
    main, other = found(text)
    assert main.calls == [CALLS[0], CALLS[2]] and main.thread == MAIN
    assert (other.thread, other.pid, other.calls) == ("Saver_0", 41, ["save (/store.py:4)"])


def test_later_dump_of_a_process_takes_the_place_of_the_earlier_one():
    head = SPY.format(pid=41, options="")
    assert named(head + FRAMES + head + "    step (train.py:7)\n") == {
        "process 41": ["step (/train.py:7)"]
    }


def test_local_rank_that_processes_of_two_nodes_have_names_neither():
    text = "".join(SPY.format(pid=pid, options=" --local-rank=0") + FRAMES for pid in (41, 52))
    assert list(named(text)) == ["process 41", "process 52"]


def test_file_of_a_rank_begins_with_its_process_and_the_others_are_its_children():
    text = "".join(SPY.format(pid=pid, options="") + FRAMES for pid in (41, 52))
    assert list(named(text, rank_of_file=3)) == ["rank 3", "process 52"]
    nodes = [replace(one, file=str(one.pid)) for one in found(text, rank_of_file=3)]
    assert list(by_thread(nodes)[MAIN]) == ["process 41", "process 52"]


@pytest.mark.parametrize(
    "prefix", ["trainer-1  | ", "2026-10-03T02:00:11.200Z stdout F ", "> ", "    "]
)
def test_wrapped_stacks_are_read_without_their_wrapper(prefix):
    text = SPY.format(pid=41, options="") + FRAMES + SPY.format(pid=42, options="") + FRAMES
    wrapped = "".join(f"{prefix}{line}\n" for line in text.splitlines() if line)
    assert named(wrapped) == {"process 41": CALLS, "process 42": CALLS}


def test_json_of_py_spy_reads_as_its_text():
    threads = [
        {
            "pid": 41, "thread_id": 9, "thread_name": "MainThread", "os_thread_id": 41,
            "active": False, "owns_gil": False,
            "frames": [
                {"name": "wait", "filename": "/usr/lib/python3.12/threading.py",
                 "short_filename": "threading.py", "line": 359},
                {"name": "<module>", "filename": "/srv/train.py", "short_filename": None,
                 "line": 9},
            ],
            "process_info": {"pid": 41, "command_line": "python train.py --local-rank=2"},
        }
    ]  # fmt: skip
    for text in (json.dumps(threads), json.dumps(threads, indent=2)):
        assert named(text) == {"rank 2": [CALLS[0], "<module> (/srv/train.py:9)"]}


@pytest.mark.parametrize(
    "text",
    [
        '[{"frames": 3}]', '[{"frames": [1, null]}]', '[{"frames": [{"name": null}]}]',
        '[{"frames": [{"name": "a\\nThread 1", "line": {}}], "pid": []}]', '{"test_categories": 1}',
    ],
)  # fmt: skip
def test_document_of_another_shape_is_no_reason_to_fail(text):
    assert all(one.pid is None for one in found(text))


def test_endless_stack_keeps_its_youngest_calls():
    text = "rank 0:\n" + "".join(f"    deep (a.py:{n})\n" for n in range(3 * MOST_FRAMES))
    assert len(found(text)[0].frames) == MOST_FRAMES
