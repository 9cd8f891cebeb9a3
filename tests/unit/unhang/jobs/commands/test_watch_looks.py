"""A look of the watcher that fails is a line, and the watch goes on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from unittest import mock

import pytest
from inspected import EVIDENCE

from unhang.core.errors import UserError
from unhang.jobs.commands import watch, watch_one
from unhang.jobs.watch.record import Record


def trace(seconds: int):
    """A rank that stands still, with another progress once: two times without progress."""
    for t in range(seconds):
        yield {
            "t": float(t),
            "pid": 1,
            "rank": 0,
            "state": "S",
            "cpu_s": 1.0,
            "switches": 5 + (1000 if t > seconds // 2 else 0),
            "children_cpu_s": 0.0,
        }


def arguments_of(*words: str):
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    return parser.parse_args(["--slurm-job", "7", "--out", str(Path()), *words])


def test_a_look_that_fails_ends_no_watch_and_no_job(capsys):
    arguments = arguments_of("--on-hang", "terminate")
    looked, ended = [], []

    def look(_options):
        looked.append(1)
        raise UserError("--slurm-job 7: srun brought no answer: Requested nodes are busy\x1b[2J")

    job = watch_one.Job(trace(300), look, lambda: ended.append(1), is_ours=True)
    assert (
        watch_one.watched(job, watch.outputs_of(arguments, watch_one.say), Record("slurm 7", "n"))
        is None
    )
    printed = capsys.readouterr().err
    assert len(looked) >= 2 and ended == []
    assert (
        "the look failed: --slurm-job 7: srun brought no answer: Requested nodes are busy"
        in printed
    )
    assert "\x1b" not in printed


@pytest.mark.parametrize(
    ("scene", "control_group", "says"),
    [
        ("never", "", None),
        ("stopped", "", "a process of it was stopped by somebody, who can let it go on: the job"),
        (
            "never",
            "/sys/fs/cgroup/job",
            "a process of it was frozen by somebody, who can let it go on",
        ),
    ],
    ids=["hangs", "stopped", "frozen"],
)
def test_a_job_that_hangs_is_ended_and_one_that_somebody_halted_is_told_alone(
    scene, control_group, says, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "60")
    arguments = arguments_of("--on-hang", "terminate", "--act", "--out", str(tmp_path))
    document = json.loads((EVIDENCE / f"{scene}-RAS-and-stacks.json").read_text(encoding="utf-8"))
    proc, pids = document["sections"]["proc"], [row["pid"] for row in document["ranks"]]
    for row in (*proc["ranks_1"], *proc["ranks_2"]):
        row["frozen"] = control_group if row["pid"] == pids[1] else ""
    ended = []
    job = watch_one.Job(
        trace(300), lambda _: [document], lambda: ended.append(1), is_ours=True, wait=str
    )
    code = watch_one.watched(
        job, watch.outputs_of(arguments, watch_one.say), Record("slurm 7", "n")
    )
    assert (code, ended) == ((None, []) if says else (watch_one.TERMINATED, [1]))
    error = capsys.readouterr().err
    screen = [line for line in error.splitlines() if not line.startswith("unhang watch, ")]
    assert max(map(len, screen)) <= 60
    printed = " ".join(error.split())
    assert "hung: rank 1 on" in printed and (says or "the job is ended") in printed


@pytest.mark.parametrize(
    "words",
    [
        ("--every", "nan"),
        ("--every", "inf"),
        ("--every", "0"),
        ("--no-progress", "nan"),
        ("--no-progress", "-4"),
        ("--grace", "-5"),
    ],
)
def test_seconds_that_make_no_sense_are_refused_by_the_name_of_their_option(words):
    arguments = arguments_of(*words)
    arguments.slurm_job, arguments.command = None, ["true"]
    with pytest.raises(UserError, match=f"{words[0]} takes .* not {words[1]}"):
        watch.run(arguments)


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_the_exit_code_is_the_job_s_and_of_a_signal_that_of_a_shell(ending, code):
    arguments = arguments_of("--no-recorder")
    arguments.slurm_job, arguments.command = (
        None,
        [sys.executable, "-c", f"import os, sys; {ending}"],
    )
    assert watch.run(arguments) == code


def verdicts_of(looks, moves_at=0, seconds=400, words=()):
    """(second of each verdict, the lines) of a job that stands, with a step at one second; looks:
    its evidence, the last one again and again."""
    lines, at, left = [], [], list(looks)
    arguments = arguments_of(*words)
    outputs = watch.outputs_of(arguments, lines.append)

    def look(_options):
        return [json.loads(left.pop(0) if len(left) > 1 else left[0])]

    moments = (
        {**row, "switches": 5 + (1000 if moves_at and row["t"] >= moves_at else 0)}
        for row in trace(seconds)
    )
    record = Record("job", "n")
    reported = lambda _headline: at.append(outputs.last[0].t)  # noqa: E731
    job = watch_one.Job(
        moments, look, lambda: None, is_ours=True, reported=reported, wait=lambda _seconds: None
    )
    watch_one.watched(job, outputs, record)
    assert len(record.verdicts) == len(at)
    return at, "\n".join(lines)


def evidence(scene, line=None):
    text = (EVIDENCE / f"{scene}-RAS-and-stacks.json").read_text(encoding="utf-8")
    if line is None:
        return text
    assert ":33)" in text
    return text.replace(":33)", f":{line})")


def test_who_waits_for_data_hangs_when_it_stands_there_at_the_next_look_too():
    at, said = verdicts_of([evidence("loader")])
    assert at == [120.0]
    assert said.count("that may go on, and is a hang if it is there at the next look too") == 1
    assert "a worker is in read_from_dead_server (inspect_job.py:33)" in said


def test_a_loader_that_stalls_at_another_sample_each_time_is_no_hang():
    assert verdicts_of([evidence("loader", line) for line in range(40, 60)])[0] == []
    once = [evidence("loader", 40), evidence("loader", 41)]
    assert verdicts_of(once)[0] == [180.0]


def test_a_place_that_differs_at_each_look_is_told_after_ten_minutes_without_progress():
    """As where py-spy fails now and then, or the first of several workers that hang changes."""
    assert verdicts_of([evidence("loader", line) for line in range(40, 60)], seconds=640) == (
        [600.0],
        mock.ANY,
    )


def test_progress_between_two_looks_is_another_stall():
    assert verdicts_of([evidence("loader")], moves_at=100)[0] == [220.0]


def test_who_waits_for_no_data_hangs_at_the_first_look_and_who_waits_for_a_child_at_the_next():
    document = json.loads(evidence("never"))
    waits = [{"pid": row["pid"], "wait": {"call": "wait"}} for row in document["ranks"]]
    document["sections"]["sockets"] = {"ranks": waits}
    assert verdicts_of([evidence("never")])[0] == [60.0]
    assert verdicts_of([json.dumps(document)])[0] == [120.0]


@pytest.mark.parametrize("on_hang", ["dump", "terminate"])
def test_a_hang_that_goes_on_is_one_line_and_no_second_bundle(on_hang, tmp_path, capsys):
    words = ["--on-hang", on_hang, "--out", str(tmp_path)]
    at, said = verdicts_of([evidence("never")], words=words)
    shown = capsys.readouterr().err
    assert (at, len(list(tmp_path.glob("hang-*")))) == ([60.0], 1)
    still = [line for line in said.splitlines() if line.startswith("still hung, ")]
    assert still == [f"still hung, {minutes} min" for minutes in range(2, 7)]
    assert (said.count("looking at the job"), shown.count("hung: rank 1")) == (1, 1)
    first = said.splitlines().index(still[0])
    assert said.splitlines()[first:] == still, "a line for each look, and no other"


def test_another_verdict_or_another_hang_after_progress_is_shown_with_its_evidence(
    tmp_path, monkeypatch
):
    stamps = iter(range(100))
    monkeypatch.setattr(watch_one.time, "strftime", lambda _form: f"{next(stamps)}")
    words = ["--on-hang", "dump", "--out", str(tmp_path)]
    looks = [evidence("never"), evidence("path"), evidence("path")]
    _, said = verdicts_of(looks, words=words, seconds=200)
    assert (len(list(tmp_path.glob("hang-*"))), said.count("still hung")) == (2, 1)
    _, said = verdicts_of([evidence("never")], words=words, seconds=240, moves_at=100)
    assert (len(list(tmp_path.glob("hang-*"))), said.count("still hung")) == (4, 1)
