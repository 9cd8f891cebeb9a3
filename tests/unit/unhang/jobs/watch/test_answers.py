"""Whether a watcher may end a job for what it saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.jobs.inspect.verdict import inspection_of
from unhang.jobs.watch.answers import is_hang, named_in
from unhang.jobs.watch.detector import ENDED, NO_PROGRESS, Event, detect

EVIDENCE = Path(__file__).parents[4] / "fixtures" / "inspect" / "evidence"
TWO_GPUS = EVIDENCE.parent / "two_gpus"


def verdict(scene: str, way: str = "RAS-and-stacks") -> dict:
    return inspection_of([json.loads((EVIDENCE / f"{scene}-{way}.json").read_text(encoding="utf-8"))])


def event(what: str) -> Event:
    return Event(70.0, what, 10.0, (1,), "nothing moved")


@pytest.mark.parametrize(
    ("what", "scene", "way", "hangs"),
    [
        (NO_PROGRESS, "never", "RAS-and-stacks", True),
        (NO_PROGRESS, "spin", "RAS-and-stacks", False),
        (NO_PROGRESS, "checkpoint", "RAS-and-stacks", False),
        (NO_PROGRESS, "never", "driver-and-proc", False),
        (ENDED, "killed", "driver-and-proc", True),
        (ENDED, "checkpoint", "RAS-and-stacks", False),
        (ENDED, "healthy", "RAS-and-stacks", False),
    ],
)
def test_a_job_is_ended_for_a_hang_alone(what, scene, way, hangs):
    assert is_hang(event(what), verdict(scene, way)) is hangs


@pytest.mark.parametrize(("scene", "hangs"), [("restore", False), ("import", False), ("baton", True)])
def test_work_that_moves_nothing_else_than_a_processor_is_looked_at_and_not_called_a_hang(scene, hangs):
    """No file, no collective and no GPU moves while a rank unpickles or imports: the samples cannot tell it from a wait, its stack does."""
    lines = map(json.loads, (TWO_GPUS / "traces" / f"{scene}.jsonl").read_text(encoding="utf-8").splitlines())
    events = list(detect(lines, 5.0))
    found = inspection_of([json.loads((TWO_GPUS / "evidence" / f"{scene}-RAS-and-stacks.json").read_text(encoding="utf-8"))])
    assert {one.what for one in events} == {NO_PROGRESS}
    assert [is_hang(one, found) for one in events] == [hangs] * len(events)


def test_two_looks_agree_if_they_name_the_same():
    assert named_in(verdict("never")) == named_in(verdict("lock")) != set()
    assert named_in(verdict("never")) != named_in(verdict("path"))
