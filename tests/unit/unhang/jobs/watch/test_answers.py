"""Whether a watcher may end a job for what it saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.jobs.inspect.verdict import inspection_of
from unhang.jobs.watch.answers import is_hang, named_in
from unhang.jobs.watch.detector import ENDED, NO_PROGRESS, Event

EVIDENCE = Path(__file__).parents[4] / "fixtures" / "inspect" / "evidence"


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


def test_two_looks_agree_if_they_name_the_same():
    assert named_in(verdict("never")) == named_in(verdict("lock")) != set()
    assert named_in(verdict("never")) != named_in(verdict("path"))
