"""`unhang inspect` at real torchrun jobs with gloo: each hang is told by its rank and place, and a
job that works is never called hung."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from descendant_processes import launched
from documented_command import as_typed
from read_again import evidence_again
from torchrun import JOB, settings, torchrun

from collector.job import build
from unhang.core.schemas.check import check_schema

UNHANG = str(Path(sys.executable).with_name("unhang"))
PATIENCE_S = 120


@contextlib.contextmanager
def job(scene: str, folder: Path, world: int = 2, nodes: int = 1, **more: str):
    """A torchrun job of which something happens to the last rank after a second; yields its
    launcher."""
    with (folder / "job.log").open("wb") as log:
        launcher = subprocess.Popen(
            torchrun(scene, world, nodes),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=settings(folder, **more),
            start_new_session=True,
        )
    try:
        yield launcher
    finally:
        for pid in launched(launcher.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        launcher.wait()


def wait_until_it_happens(folder: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while "happens" not in (folder / "job.log").read_text() and time.monotonic() < until:
        time.sleep(0.2)


def inspect(*arguments: str, user: int | None = None) -> tuple[int, dict, str]:
    done = subprocess.run(
        [UNHANG, "inspect", *arguments, "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        user=user,
        timeout=PATIENCE_S,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def inspected(launcher: subprocess.Popen, wanted: str, *arguments: str) -> tuple[int, dict]:
    """The first look that finds this state, and its bundle is read by all that read one; looks go
    on until then, because a machine may be slow to get a job there."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with tempfile.TemporaryDirectory() as folder:
            bundle = Path(folder) / "bundle.tar.gz"
            words = ("--pid", str(launcher.pid), "--gap", "1.5", "--out", str(bundle))
            code, found, errors = inspect(*words, *arguments)
            if found.get("state") == wanted or time.monotonic() > until:
                assert found.get("state") == wanted, (found, errors)
                assert evidence_again(bundle, Path(folder)) == found
                return code, found


@pytest.mark.parametrize(
    ("scene", "words", "cause"),
    [
        ("never", "it sleeps in happen (inspect_job.py", None),
        ("stopped", "its process is stopped (state T)", None),
        ("loader", "a worker is in read_from_dead_server", "slow_rank_or_io"),
        ("baton", "sleeps in wait, called by wait_for_build", "fused_kernel_build"),
        ("differ", "all_gather, called by happen", "rank_desync_app"),
        ("child", "and waits for its child ", "slow_rank_or_io"),
        ("flock", "/dataset.lock, which process ", "slow_rank_or_io"),
        ("fifo", "and waits in read on /", "slow_rank_or_io"),
        ("recv", "and waits in recv for 127.0.0.1:", "slow_rank_or_io"),
    ],
)
def test_a_hang_is_told_by_its_rank_and_place(scene, words, cause, tmp_path):
    with job(scene, tmp_path) as launcher:
        code, found = inspected(launcher, "hung")
    assert code == 1, found
    named = {suspect["rank"]: suspect for suspect in found["suspects"]}
    assert words in named[1]["why"]
    assert named[1]["cause"] == cause
    assert named[1]["next"]


@pytest.mark.parametrize(
    ("scene", "words"),
    [("receive", "an order of calls (who sends to whom"), ("groups", "groups that share ranks")],
)
def test_ranks_that_all_wait_by_an_order_of_calls_are_not_told_to_look_for_a_cable(
    scene, words, tmp_path
):
    """On one machine, without a counter of errors."""
    with job(scene, tmp_path) as launcher:
        wait_until_it_happens(tmp_path)
        _, found = inspected(launcher, "hung")
    [suspect] = found["suspects"]
    assert words in suspect["why"] and "or what lies between them" in suspect["why"]
    assert "NIC" not in suspect["next"] and "who sends to whom" in suspect["next"]


@pytest.mark.parametrize(("scene", "place"), [("spin", "happen"), ("polls", "poll_for_a_shard")])
def test_a_rank_that_runs_python_while_others_wait_is_named_and_not_called_hung(
    scene, place, tmp_path
):
    """Work that takes long and a loop without end look the same, whenever each look begins."""
    with job(scene, tmp_path) as launcher:
        wait_until_it_happens(tmp_path)
        inspected(launcher, "unknown")
        looks = [inspect("--pid", str(launcher.pid), "--gap", gap) for gap in ("0.7", "1.5", "3")]
    for code, found, _ in looks:
        assert (code, [one["rank"] for one in found["suspects"]]) == (3, [1])
        assert f"{place} (inspect_job.py" in found["headline"]


@pytest.mark.parametrize(
    ("scene", "state"),
    [
        ("healthy", "running"),
        ("checkpoint", "saving"),
        ("restore", "restoring"),
        ("import", "starting"),
        ("child-works", "working"),
        ("download", "working"),
        ("accept", "idle"),
        ("requests", "idle"),
    ],
)
def test_a_job_that_works_is_not_called_hung(scene, state, tmp_path):
    with job(scene, tmp_path) as launcher:
        wait_until_it_happens(tmp_path)
        code, found = inspected(launcher, state)
    assert (code, found["suspects"]) == (0, [])


def test_a_peer_that_never_came_is_named(tmp_path):
    """One of two nodes was started: the launcher itself waits."""
    with job("healthy", tmp_path, nodes=2) as launcher:
        _, found = inspected(launcher, "starting")
    assert "waits" in found["headline"]


@contextlib.contextmanager
def by_hand(folder: Path, *ports: int):
    """A rank of two for each port, started without a launcher; yields them."""
    argv = [sys.executable, str(JOB), "healthy", "1", "gloo"]
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    ranks = []
    try:
        with (folder / "job.log").open("wb") as log:
            for rank, port in enumerate(ports):
                own = {"RANK": str(rank), "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
                environment = settings(folder, **world, **own)
                ranks.append(subprocess.Popen(argv, stdout=log, stderr=log, env=environment))
        yield ranks
    finally:
        for one in ranks:
            one.kill()
            one.wait()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        free = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in free]


def test_ranks_that_meet_at_two_ports_are_two_jobs_and_none_is_gone(tmp_path):
    """Beside a job of the same user and program whose ranks do meet."""
    first, second, third = free_ports(3)
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    with by_hand(neighbour, third, third) as healthy, by_hand(tmp_path, first, second) as ranks:
        found: dict = {"headline": ""}
        until = time.monotonic() + PATIENCE_S
        while "two jobs" not in found["headline"] and time.monotonic() < until:
            _, found, _ = inspect("--pid", str(ranks[0].pid), "--gap", "1")
        _, without, _ = inspect("--pid", str(ranks[0].pid), "--gap", "1", "--without", "stacks")
        _, beside = inspected(healthy[0], "running")
    said = f"pid {ranks[1].pid} on "
    for one in (found, without):
        assert said in one["headline"] and "two jobs, which never meet" in one["headline"]
        assert f"MASTER_PORT={first} and rank 1" in one["headline"]
        assert (
            "gone" not in str(one["suspects"]) and "one MASTER_ADDR" in one["suspects"][0]["next"]
        )
    assert "two jobs" not in str(beside)


def test_a_rank_that_nobody_saw_is_not_called_gone(tmp_path):
    """It was started without a launcher, and alone."""
    with by_hand(tmp_path, *free_ports(1)) as ranks:
        inspected(ranks[0], "starting")
        _, found, _ = inspect("--pid", str(ranks[0].pid), "--gap", "1", "--without", "stacks")
    assert "gone" not in str(found)


def test_dumps_of_the_flight_recorder_tell_who_is_missing(tmp_path):
    """Beside the stacks, and alone; and again from the bundle."""
    bundle = tmp_path / "hang.tar.gz"
    with job(
        "never", tmp_path, TORCH_FR_BUFFER_SIZE="200", TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/fr_"
    ) as launcher:
        wait_until_it_happens(tmp_path)
        until = time.monotonic() + PATIENCE_S
        while not inspected(launcher, "hung")[1]["recorded"] and time.monotonic() < until:
            time.sleep(0.5)
        _, found, _ = inspect("--pid", str(launcher.pid), "--gap", "1.5", "--out", str(bundle))
        code, alone, _ = inspect(
            "--pid", str(launcher.pid), "--gap", "1", "--without", "stacks", "--without", "ras"
        )
    assert found["recorded"]["says"].startswith("rank 1 is waited for: 1 of 2 ranks")
    assert (code, alone["state"], [suspect["rank"] for suspect in alone["suspects"]]) == (
        3,
        "unknown",
        [1],
    )
    assert "flight recorder rank 1 is waited for" in alone["headline"]
    argv = [UNHANG, "diagnose", str(bundle), "-o", "json"]
    diagnosed = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    recorder = json.loads(diagnosed.stdout)["facts"]["flight_recorder"]
    assert recorder["waited_for"]["roots"] == {"count": 1, "ranks": "1"}


def test_without_py_spy_it_says_what_would_help(tmp_path):
    with job("never", tmp_path) as launcher:
        inspected(launcher, "hung")
        code, found, _ = inspect(
            "--pid", str(launcher.pid), "--gap", "1", "--py-spy", str(tmp_path / "none")
        )
    assert (code, found["state"]) == (3, "unknown")
    row = next(row for row in found["unread"] if row["what"] == "stacks")
    assert "py-spy" in row["why"]
    assert (row["helps"] is None) is (os.geteuid() == 0)  # root needs no sudo


def test_the_bundle_has_the_evidence_and_gives_the_same_verdict(tmp_path):
    bundle = tmp_path / "hang.tar.gz"
    with job("never", tmp_path) as launcher:
        _, found = inspected(launcher, "hung")
        inspect("--pid", str(launcher.pid), "--out", str(bundle))
    code, again, _ = inspect("--evidence", str(bundle))
    assert code == 1
    assert [suspect["rank"] for suspect in again["suspects"]] == [
        suspect["rank"] for suspect in found["suspects"]
    ]
    assert bundle.stat().st_mode & 0o077 == 0
    _, _, errors = inspect("--evidence", str(bundle), "--out", str(bundle))
    assert "the file exists already" in errors


def test_given_nothing_it_finds_this_users_ranks_or_asks_which_of_several_jobs(tmp_path):
    with job("never", tmp_path) as launcher:
        inspected(launcher, "hung")
        done = subprocess.run(
            as_typed("unhang inspect", {"unhang": UNHANG}),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        ranks = launched(launcher.pid)
    if done.returncode == 1:
        assert "rank 1 on " in done.stdout
    else:  # other tests run jobs on this machine too
        assert done.returncode == 2
        assert any(f"--pid {pid} " in done.stderr for pid in ranks), done.stderr


def test_a_process_that_ended_is_said_so():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    code, found, errors = inspect("--pid", str(done.pid))
    assert (code, found) == (2, {})
    assert f"process {done.pid} is not on this node; it has ended" in errors


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_another_users_job_needs_root(tmp_path):
    """By the one file, which any user's Python runs."""
    with tempfile.TemporaryDirectory() as place, job("never", tmp_path) as launcher:
        inspected(launcher, "hung")
        Path(place).chmod(0o755)
        program = build(Path(place) / "unhang-inspect.pyz")
        done = subprocess.run(
            [shutil.which("python3", path="/usr/bin"), str(program)],
            capture_output=True,
            text=True,
            check=False,
            user=65534,
            cwd="/",
        )
    document = json.loads(done.stdout)
    assert list(check_schema(document, "evidence-1")) == []
    assert document["ranks"] == []
    assert (
        "environment of other users' processes" in document["sections"]["ranks"]["probe"]["error"]
    )
