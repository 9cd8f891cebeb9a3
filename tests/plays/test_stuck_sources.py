"""Sources that never answer; waits for their real deadlines. Other faults of a source:
tests/unit/unhang_node/base/test_probe.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from source_runs import forget_others, good, no_children_left, run, stalls

from unhang_node.base import probe


@pytest.fixture(autouse=True)
def _others():
    forget_others()


def stalls_deaf_to_signals(ctx):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    ctx.mark("read /mnt/nfs/libnccl.so.2")
    time.sleep(3600)
    yield


def test_a_call_that_never_returns_is_named_and_what_was_read_before_stands():
    stuck, healthy = run(stalls, good, silence_s=1.0)
    assert stuck.status == "timeout"
    assert stuck.error == "nvmlDeviceGetMemoryInfo(3) did not return within 1 s"
    assert [piece.fields for piece in stuck.pieces] == [{"count": 8}]
    assert healthy.status == "ok"
    assert healthy.pieces[0].fields == {"hostname": "gpu001"}
    no_children_left()


def test_several_stuck_sources_cost_one_deadline_not_their_sum():
    started = time.monotonic()
    answers = run(*[stalls] * 6, silence_s=2.0)
    assert time.monotonic() - started < 10.0
    assert {answer.status for answer in answers} == {"timeout"}


def test_a_child_deaf_to_signals_is_killed():
    (answer,) = run(stalls_deaf_to_signals, silence_s=0.5)
    assert answer.status == "timeout"
    assert "read /mnt/nfs/libnccl.so.2" in answer.error
    assert answer.survivor is None
    no_children_left()


def test_a_source_that_marks_for_ever_without_an_answer_meets_the_deadline():
    def read(ctx):
        while True:
            ctx.mark("nvmlDeviceGetUtilizationRates(0)")
        yield

    (answer,) = run(read, deadline_s=1.0)
    assert answer.status == "timeout"
    assert answer.error == "not done within 1 s; last call: nvmlDeviceGetUtilizationRates(0)"


def test_a_call_that_is_known_to_be_slow_may_take_its_time():
    def read(ctx):
        ctx.mark("nvmlDeviceGetHandleByIndex_v2(0)", 60.0)
        time.sleep(1.5)
        ctx.mark("nvmlDeviceGetName(0)")
        yield "gpus", {"count": 1}, []

    (answer,) = run(read, silence_s=1.0, deadline_s=1.0)
    assert (answer.status, answer.error) == ("ok", None)


def test_grandchildren_die_with_a_stuck_child(tmp_path):
    note = tmp_path / "pid"

    def read(ctx):
        pid = os.fork()
        if pid == 0:
            time.sleep(3600)
        note.write_text(str(pid))
        ctx.mark("dpkg-query")
        time.sleep(3600)
        yield

    (answer,) = run(read, silence_s=1.0)
    assert answer.status == "timeout"
    pid = int(note.read_text())
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the grandchild still runs")


# The parent gives up root, its child takes it again: then the parent may not kill the child, just
# as it cannot kill one in state D.
SURVIVOR = """
import json, os, sys, time
from unhang_node.base import probe
from unhang_node.base.context import DEFAULTS, Context
from unhang_node.base.root import Root

def immortal(ctx):
    os.setresuid(0, 0, 0)
    ctx.mark("nvmlDeviceGetName(0)")
    print(json.dumps(os.getpid()), file=open(sys.argv[1], "w"))
    time.sleep(3600)
    yield

def cannot_exit(ctx):
    os.setresuid(0, 0, 0)
    os._exit = lambda code: time.sleep(3600)
    print(json.dumps(os.getpid()), file=open(sys.argv[1], "w"))
    yield "gpus", {"count": 1}, []

source = {"immortal": immortal, "cannot_exit": cannot_exit}[sys.argv[2]]
os.setresuid(65534, 65534, 0)
(answer,) = probe.run_sources([("nvml", source)], Context(Root(), DEFAULTS, [], None), 2.0, 60.0)
print(json.dumps([answer.status, answer.error, answer.survivor]))
"""
STUCK = "nvmlDeviceGetName(0) did not return within 2 s"


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make a process that its parent may not kill"
)
@pytest.mark.parametrize(
    ("source", "status", "error"), [("immortal", "timeout", STUCK), ("cannot_exit", "ok", None)]
)
def test_a_child_that_survives_sigkill_is_a_fact_and_is_not_waited_for(
    tmp_path, source, status, error
):
    tmp_path.chmod(0o777)
    note = tmp_path / "pid"
    done = subprocess.run(
        [sys.executable, "-c", SURVIVOR, str(note), source],
        env={**os.environ, "PYTHONPATH": str(Path(probe.__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
        check=True,
    )
    pid = json.loads(note.read_text())
    os.kill(pid, signal.SIGKILL)
    survivor = f"process {pid} survives SIGKILL (state S)"
    assert json.loads(done.stdout) == [status, error and f"{error}; {survivor}", survivor]
