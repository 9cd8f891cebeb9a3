"""`unhang watch` around real torchrun jobs with gloo: a job that hangs is told and ended, one that
ends keeps its exit code, nothing is left running."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from audits import wait_until
from documented_command import as_typed
from read_again import evidence_again
from torchrun import settings, torchrun

from unhang.jobs.inspect.bundle import read_documents

UNHANG = str(Path(sys.executable).with_name("unhang"))
PATIENCE_S = 200


def watch(
    tmp_path: Path, *arguments: str, command: list[str], is_shared: bool = False
) -> subprocess.CompletedProcess[str]:
    """is_shared: with `> job.log 2>&1` behind it."""
    argv = [
        UNHANG,
        "watch",
        "--every",
        "1",
        "--no-progress",
        "8",
        "--out",
        str(tmp_path),
        *arguments,
        "--",
        *command,
    ]
    given = {"text": True, "check": False, "env": settings(tmp_path), "timeout": PATIENCE_S}
    if not is_shared:
        return subprocess.run(argv, capture_output=True, **given)
    with (tmp_path / "job.log").open("w+") as log:
        done = subprocess.run(argv, stdout=log, stderr=log, **given)
        log.seek(0)
        done.stderr = log.read()
    return done


def of_the_job(tmp_path: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"INSPECT_JOB_FOLDER={tmp_path}".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("lane", ["own log", "the job's log"])
def test_a_job_that_hangs_is_told_and_ended(lane, tmp_path):
    hook = ["--hook", f"tee {tmp_path}/told", "--hook", "false"]
    ending = ["--on-hang", "terminate", "--act", "--grace", "5"]
    done = watch(tmp_path, *ending, *hook, command=torchrun("never"), is_shared="job" in lane)
    assert done.returncode == 86, done.stderr
    words, told = "it sleeps in happen", " ".join(done.stderr.split())
    assert told.count(f"hung: rank 1 on {socket.gethostname()}: {words}") == 2
    assert "a second look in 10 s" in told
    told = json.loads((tmp_path / "told").read_text())
    assert (told["schema"], told["verdict"]["word"], told["primary"][0]["rank"]) == (
        "unhang/evidence-short/1",
        "hung",
        1,
    )
    assert "hook false: it ended with exit code 1, not 0" in done.stderr
    [bundle] = tmp_path.glob("hang-*.tar.gz")
    assert str(bundle) == told["full"]
    assert evidence_again(bundle, tmp_path)["suspects"][0]["rank"] == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("unhang watch, ") and last.endswith(f"evidence is in {told['full']}")
    assert f": hung: rank 1 on {socket.gethostname()}: {words}" in last
    assert of_the_job(tmp_path) == []


def test_a_loader_that_stalls_in_the_log_that_the_watcher_writes_to_hangs_at_the_second_look(
    tmp_path,
):
    """With a rank that wakes up again and again, which the evidence of the watcher has."""
    ending = ["--no-recorder", "--no-progress", "20", "--on-hang", "terminate", "--act"]
    done = watch(tmp_path, *ending, command=torchrun("loader", 4), is_shared=True)
    assert done.returncode == 86, done.stderr
    assert done.stderr.count("is a hang if it is there at the next look too") == 1
    [bundle] = tmp_path.glob("hang-*.tar.gz")
    [document] = read_documents([bundle])
    assert {row["rank"] for row in document["ranks"] if row.get("wakes")} == {3}
    assert [one["rank"] for one in evidence_again(bundle, tmp_path)["suspects"]] == [3]


@contextlib.contextmanager
def watching(folder: Path, command: list[str], *options: str):
    """A watcher and its job, which write into job.log; what is left of them is killed."""
    argv = [UNHANG, "watch", "--every", "1", *options, "--out", str(folder), "--", *command]
    with (folder / "job.log").open("w") as log:
        watcher = subprocess.Popen(argv, stdout=log, stderr=log, env=settings(folder))
    try:
        yield watcher
    finally:
        watcher.kill()
        for pid in of_the_job(folder):
            os.kill(int(pid), signal.SIGKILL)


def written(folder: Path, words: str) -> str:
    """What both wrote, as soon as these words are in it."""
    until = time.monotonic() + PATIENCE_S
    while words not in (shown := (folder / "job.log").read_text()):
        assert time.monotonic() < until, shown
        time.sleep(0.2)
    return shown


def given_up(folder: Path, watcher: subprocess.Popen) -> None:
    """Somebody ends the watcher, and with it the job."""
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(PATIENCE_S) not in (0, 86)
    # torchrun may be gone a moment before its workers
    wait_until(lambda: not of_the_job(folder), "the job has ended")


LEAVES = """
import datetime, os, time, torch.distributed as dist
rank = int(os.environ["RANK"])
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, rank == 0)
while rank and not os.path.exists(os.environ["INSPECT_JOB_FOLDER"] + "/go"):
    time.sleep(0.1)
if rank == 0:
    store.wait(["end"], datetime.timedelta(hours=9))
"""


def test_the_evidence_of_a_rank_that_ended_is_read_by_all_that_read_evidence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = f"WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}"
    shell = f'RANK=0 {world} "$0" -c "$1" & RANK=1 {world} "$0" -c "$1" & wait'
    options = ["--no-progress", "8", "--on-hang", "dump"]
    command = ["sh", "-c", shell, sys.executable, LEAVES]
    with watching(tmp_path, command, *options) as watcher:
        written(tmp_path, "2 ranks on")
        (tmp_path / "go").touch()
        written(tmp_path, "still hung")
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(PATIENCE_S)
    rows = []
    for bundle in tmp_path.glob("hang-*.tar.gz"):
        [document] = read_documents([bundle])
        rows += [row["rank"] for row in document["ranks"] if row.get("has_ended")]
        assert evidence_again(bundle, tmp_path)["state"] in ("hung", "unknown")
    assert rows == [1], (tmp_path / "job.log").read_text()


def test_a_job_that_hangs_is_left_alone_in_shadow_and_its_end_proves_the_verdict(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("UNHANG_WATCHED", str(tmp_path / "watched.jsonl"))
    options = ["--no-progress", "8", "--on-hang", "terminate"]
    with watching(tmp_path, torchrun("never"), *options) as watcher:
        shown = written(tmp_path, "in shadow:")
        assert of_the_job(tmp_path)[1:]
        given_up(tmp_path, watcher)
    assert "the job would have been ended" in shown
    summed = subprocess.run(
        as_typed("unhang watch --record", {"unhang": UNHANG}),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "verdicts of a hang: 1: 1 right, 0 wrong, 0 not known" in summed
    assert "would have ended, or ended: 1 job: 1 right" in summed


def test_a_command_keeps_its_exit_code(tmp_path):
    assert (
        watch(
            tmp_path,
            command=[sys.executable, "-c", "import time; time.sleep(2); raise SystemExit(7)"],
        ).returncode
        == 7
    )


SHOWN = (
    "import json, os; print(json.dumps({name: value for name, value in os.environ.items() if"
    " name.startswith(('TORCH_FR', 'TORCH_NCCL'))}))"
)


def test_the_flight_recorder_is_on_in_a_job_that_is_started_and_the_watcher_names_what_it_set(
    tmp_path,
):
    done = watch(tmp_path, command=[sys.executable, "-c", SHOWN])
    found = json.loads(done.stdout)
    # by the release of torch in this environment
    assert sorted(found) == ["TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"]
    assert all(f"{name}={value}" in done.stderr for name, value in found.items())
    assert not Path(found["TORCH_FR_DUMP_TEMP_FILE"]).parent.exists()  # nothing was dumped into it
    dumped = watch(
        tmp_path,
        command=[
            sys.executable,
            "-c",
            "import os; open(os.environ['TORCH_FR_DUMP_TEMP_FILE'] + '0', 'w').close()",
        ],
    )
    folder = Path(dumped.stderr.rpartition("dumps are in ")[2].strip())
    assert [path.name for path in folder.iterdir()] == ["dump_rank_0"]
    assert folder.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(folder)
    assert (
        json.loads(watch(tmp_path, "--no-recorder", command=[sys.executable, "-c", SHOWN]).stdout)
        == {}
    )


def test_evidence_that_cannot_be_written_keeps_no_job_alive(tmp_path):
    done = watch(
        tmp_path,
        "--on-hang",
        "terminate",
        "--act",
        "--grace",
        "5",
        "--out",
        "/proc",
        command=torchrun("never"),
    )
    assert done.returncode == 86, done.stderr
    assert "the evidence could not be written" in done.stderr


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("accept", "not hung so far, idle: rank 1 is idle"),
        ("child-works", None),
        ("download", None),
    ],
)
def test_a_job_that_waits_for_its_own_work_is_left_alone_until_it_gets_sigterm(
    scene, words, tmp_path
):
    """A server without a request, a child that computes, a download are no hang, also where a busy
    machine lets the watcher look at them. SIGTERM to the watcher ends the job."""
    options = ["--no-progress", "6", "--on-hang", "terminate", "--act"]
    with watching(tmp_path, torchrun(scene), *options) as watcher:
        written(tmp_path, words or "happens")
        if not words:
            time.sleep(15)  # twice as long as a hang would be left alone
        given_up(tmp_path, watcher)
    shown = (tmp_path / "job.log").read_text()
    assert "hung: rank" not in shown and not list(tmp_path.glob("hang-*"))


def test_a_job_by_its_pid_that_ends_by_itself(tmp_path):
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    watcher = subprocess.Popen(
        [UNHANG, "watch", "--pid", str(job.pid), "--every", "0.5"],
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(3)
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert watcher.wait(PATIENCE_S) == 0


def test_a_terminal_shows_a_line_for_each_rank_until_the_job_ends():
    """Two processes with a rank each; this machine may have no GPU."""
    environment = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "here"}
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            env={**environment, "RANK": str(rank)},
        )
        for rank in (0, 1)
    ]
    ours, theirs = pty.openpty()
    argv = [UNHANG, "watch", "--pid", str(jobs[0].pid), "--every", "0.5"]
    terminal = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    watcher = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=terminal
    )
    os.close(theirs)
    shown, until = b"", time.monotonic() + PATIENCE_S
    with contextlib.suppress(OSError):  # a terminal without a process ends so
        while time.monotonic() < until and (piece := os.read(ours, 4096)):
            shown += piece
            if b"launched" in shown and b"s watched" in shown and jobs[0].poll() is None:
                jobs[0].kill()
                jobs[0].wait()
    jobs[1].kill()
    jobs[1].wait()
    assert watcher.wait(PATIENCE_S) == 0
    os.close(ours)
    lines = [line.split() for line in shown.decode().splitlines()]
    assert ["0", "S"] in lines and ["1", "S"] in lines
    assert any("2 ranks on" in line for line in shown.decode().splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give exactly one of a command behind --, --pid, --slurm-job"),
        (["--pid", "1", "--no-progress", "1"], "at least two samples"),
        (["--", "/no/such/program"], "/no/such/program: No such file"),
        (
            ["--hook", "/no/such/hook", "--", "true"],
            "--hook: /no/such/hook is not a program that can be started",
        ),
        (["--webhook", "ftp://x", "--", "true"], "--webhook takes an address"),
        (["--out", "/no/such", "--", "true"], "--out: there is no folder"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, words):
    done = subprocess.run(
        [UNHANG, "watch", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
