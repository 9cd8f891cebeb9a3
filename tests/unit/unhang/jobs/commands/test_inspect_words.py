"""What `unhang inspect` says of a look that was partial, and of options that make no sense."""

from __future__ import annotations

import argparse

import pytest
from inspected import inspection_of, render_details

from unhang.core.errors import UserError
from unhang.jobs.commands import inspect


def evidence(
    rank: int | None,
    world_size: int | None,
    frame: str = "time.sleep (train.py:4)",
    state: str = "S",
    **probes: dict,
) -> dict:
    processes = [{"pid": 4711, "of": 4711, "threads": [{"frames": [frame]}]}]
    return {
        "collector": {"host": "gpu03"},
        "ranks": [{"rank": rank, "world_size": world_size, "pid": 4711, "job": "uid=0"}],
        "sections": {
            "ranks": {"probe": {"status": "ok"}},
            "proc": {
                "ranks_1": [{"pid": 4711, "state": state}],
                "ranks_2": [{"pid": 4711, "state": state}],
            },
            "stacks": {
                "processes": processes,
                "processes_2": processes,
                "probe": probes.get("stacks", {"status": "ok"}),
            },
            "kernel_log": {"probe": probes.get("kernel_log", {"status": "ok"})},
        },
    }


@pytest.mark.parametrize(
    "rank, world_size, heading, row",
    [
        (
            1,
            2,
            "1 of 2 ranks on gpu03",
            "  1              S     code        time.sleep (train.py:4)",
        ),
        (0, 1, "1 rank on gpu03", "  0              S     code        time.sleep (train.py:4)"),
        (
            None,
            None,
            "1 process without a rank on gpu03",
            "  pid 4711       S     code        time.sleep (train.py:4)",
        ),
    ],
)
def test_the_ranks_that_were_looked_at_are_counted_and_each_shows_where_it_stands(
    rank, world_size, heading, row
):
    shown = render_details(inspection_of([evidence(rank, world_size)])).splitlines()
    assert shown[0] == heading
    assert row in shown
    assert "py-spy" not in shown[-1]


def test_one_rank_is_no_plural():
    found = inspection_of(
        [
            evidence(
                0,
                1,
                frame="all_reduce (/opt/site-packages/torch/distributed/distributed_c10d.py:9)",
            )
        ]
    )
    assert "the only rank is in all_reduce" in found[
        "headline"
    ] and "1 ranks" not in render_details(found)


@pytest.mark.parametrize("status, is_helped", [("denied", True), ("absent", False)])
def test_root_helps_where_the_kernel_log_is_denied_and_not_where_there_is_none(status, is_helped):
    shown = render_details(
        inspection_of([evidence(0, 1, kernel_log={"status": status, "error": "no such log"})])
    )
    assert "no such log" in shown
    assert ("root adds: dmesg -T" in shown) is is_helped


@pytest.mark.parametrize(
    "status, is_helped", [("denied", True), ("absent", True), ("error", False)]
)
def test_py_spy_helps_where_it_was_not_there_and_not_where_it_failed(status, is_helped):
    shown = render_details(
        inspection_of([evidence(0, 1, stacks={"status": status, "error": "no stack"})])
    )
    assert ("would help: sudo $(command -v unhang) inspect" in shown) is is_helped


@pytest.mark.parametrize(
    "state, said",
    [
        ("Z", "unknown: the job has ended, none"),
        ("gone", "unknown: the job has ended, none"),
        ("R", "unknown: it runs Python code, work that"),
    ],
)
def test_a_lone_process_that_has_ended_or_runs_is_told_as_that(state, said):
    assert said in render_details(inspection_of([evidence(None, None, state=state)]))


@pytest.mark.parametrize("written, state", [(8 << 20, "working"), (4096, "unknown")])
def test_a_process_that_writes_files_moves(written, state):
    document = evidence(None, None)
    proc = document["sections"]["proc"]
    proc.update(at_1_s=1.0, at_2_s=4.0)
    for number, size in ((1, 0), (2, written)):
        proc[f"ranks_{number}"][0]["io"] = {"read_bytes": 0, "write_bytes": size}
    assert inspection_of([document])["state"] == state


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    inspect.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    "words",
    [
        ("--gap", "0"),
        ("--gap", "601"),
        ("--gap", "nan"),
        ("--gap", "soon"),
        ("--pid", "-3"),
        ("--pid", "0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_the_name_of_its_option(words, capsys):
    with pytest.raises(SystemExit):
        parsed(*words)
    printed = capsys.readouterr().err
    assert f"argument {words[0]}: " in printed and repr(words[1]) in printed


def test_a_kernel_log_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match="--kernel-log: there is no file at "):
        inspect.run(parsed("--kernel-log", str(tmp_path / "gone")), None)


def test_of_nodes_without_an_answer_no_process_is_asked_for():
    unanswered = {
        "collector": {"host": "gone"},
        "ranks": [],
        "sections": {"ranks": {"probe": {"status": "error", "error": "no answer: no such host"}}},
    }
    with pytest.raises(UserError, match=r"no answer: no such host$"):
        inspect.run(parsed("--host", "gone"), lambda *_: [unanswered])
