"""`unhang inspect` and `unhang watch` at an engine that serves (tests/bench/engine_job.py, with
gloo): idle is said, a worker that hangs is named, and neither at an engine that works."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

JOB = Path(__file__).resolve().parent.parent / "bench" / "engine_job.py"
UNHANG = str(Path(sys.executable).with_name("unhang"))
PATIENCE_S = 200


@contextlib.contextmanager
def engine(scene: str, folder: Path):
    """Yields the pid of its server once the scene is there."""
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, str(JOB), scene, str(folder)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
    try:
        wait_until(lambda: said(folder) == ("ready" if scene == "idle" else "happens"), folder)
        yield server.pid
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def said(folder: Path) -> str:
    return (folder / "said").read_text() if (folder / "said").exists() else ""


def wait_until(holds, folder: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, [one.read_text() for one in folder.iterdir()]
        time.sleep(0.2)


def inspect(pid: int) -> tuple[int, dict]:
    argv = [UNHANG, "inspect", "--pid", str(pid), "--gap", "1.5", "-o", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return done.returncode, json.loads(done.stdout)


def test_an_engine_without_a_request_is_idle(tmp_path):
    with engine("idle", tmp_path) as pid:
        code, found = inspect(pid)
    assert (code, found["state"], found["headline"]) == (
        0,
        "idle",
        "all 2 ranks are idle: no request",
    )


def test_an_engine_that_works_runs(tmp_path):
    with engine("works", tmp_path) as pid:
        for _ in range(3):
            code, found = inspect(pid)
            assert (code, found["state"]) == (0, "running"), found


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("code", "it sleeps in stand_in_a_lock (engine_job.py"),
        ("left", "it sleeps in all_reduce, called by work (engine_job.py"),
        ("after", "it sleeps in stand_in_a_lock (engine_job.py"),
    ],
)
def test_the_worker_that_hangs_is_named(scene, words, tmp_path):
    with engine(scene, tmp_path) as pid:
        until = time.monotonic() + PATIENCE_S
        while (looked := inspect(pid))[1]["state"] != "hung":  # it may still be on its way there
            assert time.monotonic() < until, looked
    code, found = looked
    [suspect] = found["suspects"]
    assert (code, suspect["rank"]) == (1, 1)
    assert words in suspect["why"]


@pytest.mark.parametrize(("scene", "looks", "hangs"), [("idle", 3, 0), ("code", 1, 1)])
def test_watch_is_silent_at_an_idle_engine_and_reports_one_that_hangs(
    scene, looks, hangs, tmp_path
):
    metrics, told = tmp_path / "watch.prom", tmp_path / "told"
    argv = [UNHANG, "watch", "--every", "1", "--no-progress", "4", "--textfile", str(metrics)]
    with engine(scene, tmp_path) as pid, told.open("wb") as screen:
        watcher = subprocess.Popen(
            [*argv, "--pid", str(pid)],
            stderr=screen,
            env={**os.environ, "UNHANG_WATCHED": str(tmp_path / "watched.jsonl")},
        )
        try:
            wait_until(lambda: counted(metrics, "unhang_watch_looks") >= looks, tmp_path)
            wait_until(lambda: counted(metrics, "unhang_watch_hangs") >= hangs, tmp_path)
        finally:
            watcher.terminate()
            watcher.wait(PATIENCE_S)
    shown = " ".join(told.read_text().split())
    assert (f"hung: rank 1 on {socket.gethostname()}: it sleeps in" in shown) == bool(hangs), shown
    assert counted(metrics, "unhang_watch_hangs") == hangs, shown
    assert shown.count("looking at the job") == 1 or hangs, shown  # once, not at each look


def counted(metrics: Path, name: str) -> float:
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    values = [line.rpartition(" ")[2] for line in lines if line.startswith(name)]
    return float(values[0]) if values else 0.0
