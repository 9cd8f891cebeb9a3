"""`unhang inspect` and `unhang watch --slurm-job` on a real Slurm: a gloo job over two of its nodes
hangs, and the rank and its node are named."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import audits
import pytest
import slurm_here

from collector.job import build

JOB = Path(__file__).resolve().parents[1] / "bench" / "inspect_job.py"
SPY = str(Path(sys.executable).with_name("py-spy"))
PROGRAM = audits.PROJECT / "dist" / "unhang-inspect.pyz"

pytestmark = pytest.mark.skipif(
    bool(slurm_here.missing()), reason=f"apt has no {', '.join(slurm_here.missing())} here"
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The cluster for all tests of this file."""
    yield from slurm_here.booted(tmp_path_factory.mktemp("slurm"))


def inspect(slurm, *arguments):
    argv = slurm.bed.inside(
        [str(audits.PROGRAMS / "unhang"), "inspect", *arguments, "-o", "json"], "/tmp"
    )
    done = subprocess.run(
        argv,
        env=slurm.environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=audits.DEADLINE_S,
    )
    sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@contextlib.contextmanager
def job_of(slurm, folder, scene):
    """A gloo job of two ranks, one on each of two nodes of Slurm, of which something has happened
    to the last; yields its number."""
    build(PROGRAM)
    script = folder / "job.sh"
    rank = (
        "RANK=$SLURM_PROCID LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29513 exec"
        f" {sys.executable} {JOB} {scene} 1 gloo"
    )
    script.write_text(
        f"#!/bin/sh\nexport INSPECT_JOB_FOLDER={folder} OMP_NUM_THREADS=1\nexec srun -N2 -n2 sh -c"
        f" '{rank}'\n"
    )
    job = slurm.run(
        "sbatch",
        "--parsable",
        "--nodelist=gpu[001-002]",
        "--nodes=2",
        "--ntasks=2",
        "--chdir=/tmp",
        f"--output={folder}/log",
        str(script),
    )
    try:
        audits.wait_until(
            lambda: (
                "happens" in (folder / "log").read_text() if (folder / "log").exists() else False
            ),
            "the job trains",
        )
        yield job
    finally:
        slurm.run("scancel", job)
        audits.wait_until(lambda: slurm.run("squeue", "-h", "-j", job) == "", "the job has ended")


def test_one_look_names_the_rank_and_its_node(slurm, tmp_path):
    with job_of(slurm, tmp_path, "never") as job:
        audits.wait_until(
            lambda: inspect(slurm, "--slurm-job", job, "--py-spy", SPY)[1].get("state") == "hung",
            "the job is found hung",
        )
        code, found, _ = inspect(slurm, "--slurm-job", job, "--py-spy", SPY)
    assert code == 1
    assert sorted(row["host"] for row in found["hosts"]) == ["gpu001", "gpu002"]
    assert [(suspect["host"], suspect["rank"]) for suspect in found["suspects"]] == [("gpu002", 1)]
    assert "it sleeps in happen" in found["suspects"][0]["why"]


def test_a_job_that_does_not_run_is_told(slurm):
    code, found, errors = inspect(slurm, "--slurm-job", "4711")
    assert (code, found) == (2, {})
    assert "does not name one job that Slurm knows" in errors


def watch(slurm, *arguments):
    argv = slurm.bed.inside(
        [
            str(audits.PROGRAMS / "unhang"),
            "watch",
            "--every",
            "1",
            "--no-progress",
            "8",
            "--py-spy",
            SPY,
            *arguments,
        ],
        "/tmp",
    )
    return subprocess.Popen(
        argv,
        env=slurm.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_a_job_of_two_nodes_is_watched_from_outside_and_ended_when_it_hangs(slurm, tmp_path):
    with job_of(slurm, tmp_path, "never") as job:
        ending = ("--on-hang", "terminate", "--act", "--out", str(tmp_path))
        watcher = watch(slurm, "--slurm-job", job, *ending)
        printed, _ = watcher.communicate(timeout=audits.DEADLINE_S)
        state = slurm.run("squeue", "-h", "-j", job, "-o", "%T")
    assert watcher.returncode == 86, printed
    assert "hung: rank 1 on gpu002: it sleeps in happen" in printed
    assert "a second look in 10 s" in printed
    assert state in ("", "COMPLETING")
    assert list(tmp_path.glob("hang-*.tar.gz"))


def test_a_job_of_two_nodes_that_trains_is_told_nothing_of_until_it_ends(slurm, tmp_path):
    with job_of(slurm, tmp_path, "healthy") as job:
        watcher = watch(slurm, "--slurm-job", job)
        lines = []
        audits.wait_until(
            lambda: (
                lines.append(watcher.stdout.readline())
                or sum("ranks on" in line or "rank on" in line for line in lines) == 2
            ),
            "both nodes have samples",
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            watcher.wait(20)
        slurm.run("scancel", job)
        rest, _ = watcher.communicate(timeout=audits.DEADLINE_S)
    assert watcher.returncode == 0, rest
    # on a busy machine it may look, and finds that the job runs
    assert "hung" not in rest.replace("not hung so far", ""), rest


def test_a_job_that_does_not_run_is_not_watched(slurm):
    watcher = watch(slurm, "--slurm-job", "4711")
    printed, _ = watcher.communicate(timeout=audits.DEADLINE_S)
    assert watcher.returncode == 2
    assert "does not name one job that Slurm knows" in printed and "Traceback" not in printed


ENDED = """
import sys
from unhang.jobs.inspect.ways import read_slurm_job
from unhang.jobs.watch.of_slurm import how_it_ended
print(how_it_ended(sys.argv[1]), read_slurm_job(sys.argv[1], with_comment=True).comment)
"""


@pytest.mark.parametrize(
    ("claimed", "exit_code", "how"), [("COMPLETED", 3, "failed"), ("FAILED", 0, "ended well")]
)
def test_how_a_job_ended_is_not_for_its_name_and_comment_to_say(slurm, claimed, exit_code, how):
    text = f"x JobState={claimed} ExitCode=0:0 |{claimed}|0|1|"
    given = ("--chdir=/tmp", "--output=/dev/null", f"--comment={text}", f"--job-name={text}")
    job = slurm.run("sbatch", "--parsable", *given, f"--wrap=sleep 10; exit {exit_code}")
    asked = slurm.bed.inside([sys.executable, "-c", ENDED, job], "/tmp")

    def answer():
        done = subprocess.run(
            asked, env=slurm.environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.rstrip("\n")

    assert answer() == f"not seen {text}"
    audits.wait_until(lambda: not answer().startswith("not seen"), "the job has ended")
    assert answer() == f"{how} {text}"
