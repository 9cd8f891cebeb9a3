"""The watch over a worker's memory: it ends a reading that does not end, and nothing else."""

from __future__ import annotations

import signal
import time

import pytest

from unhang.core.ansible.memory_watch import MemoryWatch, resident_bytes

MIB = 1024 * 1024


class GivenUp(Exception):
    """What the task's alarm raises."""


@pytest.fixture
def _alarm():
    """A handler as a task with a timeout has one."""

    def ring(number, frame):
        raise GivenUp

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.signal(signal.SIGALRM, before)


def grow(most_mib):
    """Takes memory as a connection does that reads, a chunk at a time."""
    held = []
    for _ in range(most_mib):
        held.append(b"x" * MIB)
        time.sleep(0.002)
    return held


def test_an_unending_answer_raises_in_the_thread_that_reads_it(_alarm):
    watch = MemoryWatch(most_bytes=32 * MIB)
    start = resident_bytes()
    with pytest.raises(GivenUp), watch:
        grow(1024)
    assert watch.exceeded
    assert resident_bytes() - start < 512 * MIB


def test_an_answer_within_bounds_is_left_alone(_alarm):
    watch = MemoryWatch(most_bytes=256 * MIB)
    with watch:
        grow(16)
        time.sleep(0.2)
    assert not watch.exceeded


def test_no_alarm_rings_once_the_answer_was_read(_alarm):
    for _ in range(20):
        # exceeded at the first look, which may fall on the end of the reading
        watch = MemoryWatch(most_bytes=-(10**12))
        try:
            with watch:
                time.sleep(0.05)
        except GivenUp:
            assert watch.exceeded
        time.sleep(0.01)
