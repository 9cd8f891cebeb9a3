"""Native stacks of ranks that hang: by the real py-spy, by a py-spy that hangs itself, and without
py-spy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from smoke_runs import DEADLINE_S, HANG, load_payload, smoke

payload = load_payload()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell script with this name first on PATH."""

    def put(name, script):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return put


def test_a_hung_ranks_stack_is_seen_from_outside_too():
    done = smoke(*HANG)
    evidence = {row["rank"]: row for row in done.result["evidence"]}
    assert "all_reduce" in evidence[0]["native_stack"], "of who waits in the collective"
    assert "drill (" in evidence[1]["native_stack"], "of who never entered it"
    assert [suspect["rank"] for suspect in done.suspects] == [1]


def test_native_frames_name_the_library_that_waits():
    store = (
        "import torch.distributed as d\nprint('here', flush=True)\nd.TCPStore('127.0.0.1', 0, 2,"
        " True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", store], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as waiting:
        waiting.stdout.readline()
        output, until = "", time.monotonic() + DEADLINE_S
        while "TCPStore" not in output and time.monotonic() < until:
            output = payload.native_stacks(
                payload.find_spy(sys.executable), [waiting.pid], DEADLINE_S
            ).get(waiting.pid, "")
        waiting.kill()
    assert "libtorch" in output
    assert "TCPStore" in output


def test_a_spy_that_hangs_costs_seconds_and_nothing_else(program):
    program("py-spy", "exec sleep 100000")
    done = smoke(*HANG)
    assert [suspect["rank"] for suspect in done.suspects] == [1]
    for row in done.result["evidence"]:
        assert "native_stack" not in row
        assert row["stack"]
        assert row["waited_s"] < 20


def test_a_spy_that_may_not_look_leaves_no_stack_and_no_process(program):
    program("py-spy", "echo 'Permission denied: try sudo' >&2; exit 1")
    assert payload.native_stacks(payload.find_spy(None), [os.getpid()]) == {}


def test_without_native_frames_a_look_from_outside_is_taken(program):
    program(
        "py-spy", 'case "$*" in *--native*) exec sleep 100000;; esac\necho "main (train.py:7) $*"'
    )
    output = payload.native_stacks(payload.find_spy(None), [4711], 8)
    assert output[4711].startswith("main (train.py:7) dump --nonblocking --pid 4711")


def test_the_spy_is_found_beside_the_users_python(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    spy = tmp_path / "py-spy"
    spy.write_text("#!/bin/sh\n")
    spy.chmod(0o755)
    assert payload.find_spy(str(tmp_path / "python")) == str(spy)


def test_looking_at_a_stopped_process_leaves_it_stopped():
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import time\nprint('here', flush=True)\ntime.sleep(10000)"],
        stdout=subprocess.PIPE,
    )
    with sleeper:
        sleeper.stdout.readline()
        sleeper.send_signal(signal.SIGSTOP)
        until = time.monotonic() + DEADLINE_S
        while payload.process_state(sleeper.pid)[0] != "T" and time.monotonic() < until:
            time.sleep(0.01)
        spy = payload.find_spy(sys.executable)
        assert spy, "py-spy is among the development requirements"
        payload.native_stacks(spy, [sleeper.pid])
        while payload.process_state(sleeper.pid)[0] != "T" and time.monotonic() < until:
            time.sleep(0.01)
        assert payload.process_state(sleeper.pid)[0] == "T"
        sleeper.kill()
