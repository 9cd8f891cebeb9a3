"""`unhang inspect --slurm-job` on a real Slurm: a gloo job over two of its nodes hangs, and one look names the rank and its node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import audits
import pytest
import slurm_here

from collector.job import build

JOB = Path(__file__).resolve().parents[1] / "bench" / "inspect_job.py"
PROGRAM = audits.PROJECT / "dist" / "unhang-inspect.pyz"

pytestmark = pytest.mark.skipif(bool(slurm_here.missing()), reason=f"apt has no {', '.join(slurm_here.missing())} here")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The cluster for all tests of this file."""
    yield from slurm_here.booted(tmp_path_factory.mktemp("slurm"))


def inspect(slurm, *arguments):
    argv = slurm.bed.inside([str(audits.PROGRAMS / "unhang"), "inspect", *arguments, "-o", "json"], "/tmp")
    done = subprocess.run(argv, env=slurm.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=audits.DEADLINE_S)
    sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_one_look_names_the_rank_and_its_node(slurm, tmp_path):
    build(PROGRAM)
    script = tmp_path / "job.sh"
    rank = f"RANK=$SLURM_PROCID LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29513 exec {sys.executable} {JOB} never 1 gloo"
    script.write_text(f"#!/bin/sh\nexport INSPECT_JOB_FOLDER={tmp_path} OMP_NUM_THREADS=1\nexec srun -N2 -n2 sh -c '{rank}'\n")
    job = slurm.run("sbatch", "--parsable", "--nodelist=gpu[001-002]", "--nodes=2", "--ntasks=2", "--chdir=/tmp", f"--output={tmp_path}/log", str(script))
    spy = str(Path(sys.executable).with_name("py-spy"))
    try:
        audits.wait_until(lambda: "happens" in (tmp_path / "log").read_text() if (tmp_path / "log").exists() else False, "the job trains")
        audits.wait_until(lambda: inspect(slurm, "--slurm-job", job, "--py-spy", spy)[1].get("state") == "hung", "the job is found hung")
        code, found, _ = inspect(slurm, "--slurm-job", job, "--py-spy", spy)
    finally:
        slurm.run("scancel", job)
    assert code == 1
    assert sorted(row["host"] for row in found["hosts"]) == ["gpu001", "gpu002"]
    assert [(suspect["host"], suspect["rank"]) for suspect in found["suspects"]] == [("gpu002", 1)]
    assert "it sleeps in happen" in found["suspects"][0]["why"]


def test_a_job_that_does_not_run_is_told(slurm):
    code, found, errors = inspect(slurm, "--slurm-job", "4711")
    assert (code, found) == (2, {})
    assert "expected a job that runs" in errors
