"""A look of the watcher that fails is a line, and the watch goes on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

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
        watch_one.watched(
            job, arguments, watch.outputs_of(arguments, watch_one.say), Record("slurm 7", "n")
        )
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
    with pytest.raises(UserError, match=f"{words[0]}.*found {words[1]}"):
        watch.run(arguments)


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_the_exit_code_is_the_job_s_and_of_a_signal_that_of_a_shell(ending, code):
    arguments = arguments_of("--no-recorder")
    arguments.slurm_job, arguments.command = (
        None,
        [sys.executable, "-c", f"import os, sys; {ending}"],
    )
    assert watch.run(arguments) == code
