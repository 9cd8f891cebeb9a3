"""Whose job is looked at next: users in turn, and of each the job that waits longest."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from other_users import program

from unhang.jobs.watch.when_to_look import Turn, Turns

LOOK_S = 4.0


def order(waiting, asks=(), takes=None, most=12):
    """Names in the order in which they are looked at. waiting: {name: turn}; asks: (second, name,
    turn) of those that come later; takes: {user: seconds of a look}."""
    turns, waiting, asks, now, found = Turns(), dict(waiting), list(asks), 1000.0, []
    while (waiting or asks) and len(found) < most:
        for row in [row for row in asks if row[0] <= now]:
            asks.remove(row)
            waiting[row[1]] = row[2]
            row[2].asked = row[0]
        name = min(waiting, key=lambda one: turns.place(waiting[one]))
        turn = waiting.pop(name)
        began, now = now, now + (takes or {}).get(turn.user, LOOK_S)
        turns.takes(turn, began, now)
        found.append(name)
    return found


def idle(count, user="a", **more):
    return {f"{user}{n}": Turn(user, asked=1000.0, **more) for n in range(count)}


def test_thirty_jobs_of_one_user_keep_another_user_s_job_waiting_for_one_of_them():
    late = [(1001.0, "victim", Turn("b"))]
    assert order(idle(30), late)[:3] == ["a0", "victim", "a1"]


def test_users_take_turns_and_a_user_s_jobs_too():
    found = order({**idle(3), **idle(2, "b"), **idle(1, "c")})
    assert [name[0] for name in found] == ["a", "b", "c", "a", "b", "a"]
    again = {name: Turn("a", looked=at) for name, at in (("new", 0.0), ("old", 5.0), ("last", 9.0))}
    assert order(dict(reversed(again.items()))) == ["new", "old", "last"]


def test_a_user_whose_looks_take_long_waits_longer():
    found = order({**idle(5, "slow"), **idle(30, "b")}, takes={"slow": 60.0}, most=32)
    first, second = [at for at, name in enumerate(found) if name.startswith("slow")][:2]
    assert second - first > 10


@pytest.mark.parametrize("others", [30, 1])
def test_a_job_with_a_gpu_goes_before_one_without(others):
    late = [(1003.0, "gpu", Turn("b", has_gpu=True))]
    assert order({**idle(others), **idle(others, "c")}, late)[1] == "gpu"


def test_a_job_without_a_gpu_is_looked_at_however_many_have_one():
    found = order({"cpu": Turn("b", asked=1000.0), **idle(100, has_gpu=True)}, most=40)
    assert "cpu" in found


RANK = "import os, sys, time; os.write(int(sys.argv[-1]), b'1'); time.sleep(6000)"
# Stops whatever the watcher starts with its user's rights.
STOPS = """
import os, signal, sys, time
os.write(int(sys.argv[-1]), b"1")
while True:
    time.sleep(0.05)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_own = os.stat("/proc/" + pid).st_uid == os.getuid() or (
                "Uid:\\t%d\\t" % os.getuid() in open("/proc/%s/status" % pid).read()
            )
            if is_own and "os.write(int" not in open("/proc/%s/cmdline" % pid).read():
                os.kill(int(pid), signal.SIGSTOP)
        except OSError:
            pass
"""
WATCH = (
    "import sys; from unhang.cli import main;"
    " sys.exit(main(['watch', '--all', '--no-progress', '4', '--every', '1']))"
)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes of two users")
def test_a_user_who_slows_the_looks_at_his_processes_delays_no_other_user_s(tmp_path):
    """Ten idle processes of a user who stops the helpers, then a job of another user."""
    settings = {"RANK": "0", "WORLD_SIZE": "1"}
    environment = {**os.environ, "UNHANG_WATCHED": str(tmp_path / "record")}
    with contextlib.ExitStack() as stack:
        # a user whom no other test has, as all of his processes are stopped
        evil = [
            stack.enter_context(program(4719, RANK, MASTER_ADDR=f"{tmp_path}{n}", **settings)).pid
            for n in range(10)
        ]
        stack.enter_context(program(4719, STOPS))
        watcher = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", WATCH], env=environment, stderr=subprocess.PIPE, text=True
            )
        )
        stack.callback(watcher.send_signal, signal.SIGTERM)

        def line_about(pids, words, seen=None):
            """Reads on until there is one."""
            for line in watcher.stderr:
                if seen is not None:
                    seen.append(line)
                if any(f"pid {pid}: " in line for pid in pids) and words in line:
                    return
            raise AssertionError(f"the watch ended before {words}")

        for _ in evil:
            line_about(evil, "looking at the job")
        victim = stack.enter_context(program(4712, RANK, MASTER_ADDR=str(tmp_path), **settings)).pid
        line_about([victim], "its look waits for its turn; ")
        seen = []
        line_about([victim], "unknown: ", seen)
    others = [line for line in seen if any(f"pid {pid}: unknown" in line for pid in evil)]
    assert len(others) <= 2, seen  # the one under way, and one that had just ended
