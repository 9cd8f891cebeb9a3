"""Work in a child process: a child that never ends or uses all memory is killed, and the error
names its current work."""

from __future__ import annotations

import itertools
import os
import time

import pytest

from unhang.core.errors import UserError
from unhang.core.limits import Limits, Stopped, run_limited

QUICK = Limits(cpu_s=1, memory_bytes=256 << 20, wall_s=120)


def test_a_result_comes_back_with_what_it_holds():
    assert run_limited(lambda mark: {"pid": os.getpid()}, QUICK)["pid"] != os.getpid()


def test_what_the_work_raises_is_raised_here():
    def work(mark):
        raise UserError("expected one thing, found another")

    with pytest.raises(UserError, match="expected one thing"):
        run_limited(work, QUICK)


def test_work_without_end_is_ended_and_names_what_it_was_at():
    def work(mark):
        mark("rule-seven")
        while True:
            pass

    assert run_limited(work, QUICK) == Stopped("cpu", "rule-seven")


def test_of_work_that_uses_up_its_time_the_costliest_part_is_named_and_not_the_one_met_at_the_end():
    def work(mark):
        mark("costly")
        began = time.process_time()
        while time.process_time() - began < 1.5:
            pass
        for number in itertools.cycle(range(1000)):
            mark(f"cheap-{number}")
            mark("")

    assert run_limited(work, Limits(cpu_s=2, wall_s=600)) == Stopped("cpu", "costly")


def test_work_that_waits_for_ever_is_ended():
    def work(mark):
        mark("rule-eight")
        time.sleep(3600)

    assert run_limited(work, Limits(wall_s=0.5)) == Stopped("time", "rule-eight")


def test_work_that_takes_all_memory_is_ended():
    def work(mark):
        mark("rule-nine")
        return len("x" * (1 << 33))

    assert run_limited(work, QUICK) == Stopped("memory", "rule-nine")


def test_a_child_that_dies_is_reported_as_stopped():
    def work(mark):
        mark("rule-ten")
        os._exit(3)

    assert run_limited(work, QUICK) == Stopped("crash", "rule-ten")
