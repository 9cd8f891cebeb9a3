"""The machine's load as the agent reads it, from prepared files and from this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from unhang.smoke.payload.load import EVERY_S, LoadWatch, queued_s, read_load

FILES = {
    "pressure/cpu": "some avg10=99.78 avg60=99.77 avg300=95.77 total=25693165961\nfull avg10=0.00\n",
    "stat": "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2\n",
    "loadavg": "16.98 12.67 8.00 17/336 15240\n",
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A file tree with the three files."""
    for name, text in FILES.items():
        path = tmp_path / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("UNHANG_SMOKE_ROOT", str(tmp_path))
    return tmp_path


def test_pressure_ticks_and_run_queue_are_read(root):
    read = read_load()
    assert (read["waited_us"], read["ticks"], read["stolen"], read["runnable"]) == (
        25693165961, 360, 80, 16,
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "some total=x", "cpu a b", "some avg10 a b total=\n"])
def test_a_file_of_another_form_has_no_value(root, text):
    for name in FILES:
        (root / "proc" / name).write_text(text)
    read = read_load()
    assert {read[name] for name in ("waited_us", "ticks", "stolen", "runnable")} == {None}
    assert LoadWatch().answer()["waited"] is None


def test_shares_are_those_of_the_time_between_two_samples(root):
    watch = LoadWatch()
    watch.look([])
    (root / "proc" / "stat").write_text("cpu  10 20 30 60 50 60 70 100\n")
    time.sleep(0.2)
    (root / "proc" / "pressure" / "cpu").write_text(
        FILES["pressure/cpu"].replace("25693165961", str(25693165961 + 100_000))
    )
    answer = watch.answer()
    assert answer["stolen"] == 0.5 and answer["runnable"] == 16
    assert 0 < answer["waited"] <= 0.5


@pytest.mark.slow
def test_a_process_that_wants_a_cpu_waits_more_than_one_that_sleeps():
    """Two that spin on one CPU share it: each waits about half of the time."""
    cpu = str(min(os.sched_getaffinity(0)))
    spin = ["taskset", "-c", cpu, sys.executable, "-c", "while True: pass"]
    asleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    started = [subprocess.Popen(argv) for argv in (spin, spin, asleep)]
    try:
        time.sleep(EVERY_S)  # for the interpreters to start
        watch, pids = LoadWatch(), [one.pid for one in started]
        began = time.monotonic()
        watch.look(pids)
        time.sleep(2 * EVERY_S)
        waits = [watch.queued(pid, began) for pid in pids]
    finally:
        for one in started:
            one.kill()
            one.wait()
    assert min(waits[:2]) > 0.25 > waits[2]


def test_a_process_that_is_gone_has_no_wait():
    done = subprocess.Popen(["true"])
    done.wait()
    assert queued_s(done.pid) is None
    assert LoadWatch().queued(done.pid, 0.0) is None
