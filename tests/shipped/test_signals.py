"""SIGTERM and SIGINT to `unhang watch` reach the job once; the watcher waits for it and ends with
its code. Real processes, also as PID 1 of a namespace and behind a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

UNHANG = str(Path(sys.executable).with_name("unhang"))
PATIENCE_S = 120
# Writes each signal that it gets, and ends by itself a second after the first, with code 7.
JOB = """
import os, signal, sys, time
got = []
def take(number, frame):
    got.append(signal.Signals(number).name)
signal.signal(signal.SIGTERM, take)
signal.signal(signal.SIGINT, take)
signal.signal(signal.SIGHUP, take)
place = sys.argv[1]
open(place + ".ready", "w").write(str(os.getpid()))
while not got:
    time.sleep(0.05)
time.sleep(1)
open(place, "w").write(" ".join(got))
sys.exit(7)
"""


def watch(place: Path, *before: str) -> list[str]:
    return [
        *before, UNHANG, "watch", "--no-recorder", "--every", "0.5", "--",
        sys.executable, "-c", JOB, str(place),
    ]  # fmt: skip


def ready(place: Path) -> None:
    mark, until = Path(f"{place}.ready"), time.monotonic() + PATIENCE_S
    while not mark.exists() or not mark.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(1.5)  # the watcher takes samples by now


@contextlib.contextmanager
def watcher(place: Path, *before: str, **options):
    """The watcher alone in a session; at the end what it started is ended by its number."""
    process = subprocess.Popen(
        watch(place, *before), stderr=subprocess.DEVNULL, start_new_session=True, **options
    )
    try:
        ready(place)
        yield process
    finally:
        for pid in (process.pid, int(Path(f"{place}.ready").read_text() or 0)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL) if pid > 1 and not before else process.kill()
        process.wait(PATIENCE_S)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_reaches_the_job_and_its_code_is_the_watcher_s(name, tmp_path):
    with watcher(tmp_path / "got") as process:
        os.kill(process.pid, signal.Signals[name])
        assert process.wait(PATIENCE_S) == 7
        assert (tmp_path / "got").read_text() == name


def test_a_signal_to_the_whole_group_reaches_the_job_once(tmp_path):
    """As Slurm and timeout send it."""
    with watcher(tmp_path / "got") as process:
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 7
        assert (tmp_path / "got").read_text() == "SIGTERM"


def test_each_signal_is_passed_on_also_after_the_first(tmp_path):
    with watcher(tmp_path / "got") as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.4)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 7
        assert (tmp_path / "got").read_text() == "SIGTERM SIGINT"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_watcher_that_is_pid_1_passes_the_signal_on(name, tmp_path):
    """As in a pod: the kernel drops signals that PID 1 has no handler for."""
    if os.geteuid() != 0:
        pytest.skip("a process namespace needs root")
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
    with watcher(tmp_path / "got", *argv) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 1
        status = Path(f"/proc/{children[0]}/status").read_text()
        assert [line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")] == [
            "1"
        ]
        os.kill(int(children[0]), signal.Signals[name])
        assert process.wait(PATIENCE_S) == 7
        assert (tmp_path / "got").read_text() == name


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_what_a_terminal_sends_reaches_the_job_once(name, tmp_path, monkeypatch):
    """Ctrl-C goes to the job too, which stays in the foreground there; the end of the terminal to
    the first process of its session alone. The watch is in the record after both."""
    place, record = tmp_path / "got", tmp_path / "record"
    monkeypatch.setenv("UNHANG_WATCHED", str(record))
    pid, terminal = pty.fork()
    if pid == 0:
        argv = watch(place)
        os.execv(argv[0], argv)
    try:
        ready(place)
        if name == "SIGINT":
            os.write(terminal, b"\x03")
            with contextlib.suppress(OSError):  # a terminal without a process ends so
                while os.read(terminal, 4096):
                    pass
        else:
            os.close(terminal)
            terminal = -1
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        if terminal >= 0:
            os.close(terminal)
    assert (code, place.read_text()) == (7, name)
    assert len(record.read_text().splitlines()) == 1


def test_a_signal_that_the_shell_had_ignored_stays_ignored(tmp_path):
    """As `nohup` or a shell's background does with SIGINT."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with watcher(tmp_path / "got", preexec_fn=ignore) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert process.poll() is None and not (tmp_path / "got").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 7
        assert (tmp_path / "got").read_text() == "SIGTERM"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("what", ["--all", "--pid"])
def test_a_watch_that_a_signal_ends_is_in_the_record(what, name, tmp_path):
    record = tmp_path / "record"
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": str(tmp_path)}
    found = {**os.environ, "UNHANG_WATCHED": str(record)}
    with contextlib.ExitStack() as stack:
        rank = stack.enter_context(subprocess.Popen(["sleep", "600"], env=environment))
        stack.callback(rank.kill)
        argv = [UNHANG, "watch", *([what] if what == "--all" else [what, str(rank.pid)])]
        process = stack.enter_context(
            subprocess.Popen(argv, env=found, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        for line in process.stderr:
            if f"pid {rank.pid}: 1 rank" in line or (what == "--pid" and "1 rank on" in line):
                break
        process.send_signal(signal.Signals[name])
        assert process.wait(PATIENCE_S) == 128 + signal.Signals[name]
    assert f'"job":"pid {rank.pid}"' in record.read_text()
