"""How long a drained node waits for its jobs, by what a real Slurm says of their ends: a job
without a time limit of its own has the longest of its partition. One that asks for no limit never
runs where the partition has one."""

from __future__ import annotations

import datetime

import audits
import pytest
import slurm_here

from unhang.act.rollout.waiting import GRACE_S, UNLIMITED_S, waits_until

pytestmark = pytest.mark.skipif(
    bool(slurm_here.missing()), reason=f"apt has no {', '.join(slurm_here.missing())} here"
)
LONGEST_S = 90 * 60
SINCE = "2026-11-25T00:00:00+00:00"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A cluster whose partition `train` has a longest time limit, and whose partition `all` has
    none."""
    configuration = slurm_here.CONFIGURATION.replace(
        "PartitionName=train ", f"PartitionName=train MaxTime={LONGEST_S // 60} "
    )
    yield from slurm_here.booted(tmp_path_factory.mktemp("slurm"), configuration=configuration)


def end_of_job(slurm, *arguments):
    """(begin, end) of a job on gpu001, as squeue prints them: the end is what the role drain
    reads."""
    script = slurm.folder / "job.sh"
    script.write_text("#!/bin/sh\nexec sleep 3000\n")
    job = slurm.run(
        "sbatch",
        "--parsable",
        "--nodelist=gpu001",
        "--chdir=/tmp",
        "--output=/dev/null",
        *arguments,
        str(script),
    )
    try:
        audits.wait_until(
            lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", f"job {job} runs"
        )
        return slurm.run("squeue", "-h", "-j", job, "-o", "%S|%e").split("|")
    finally:
        slurm.run("scancel", job)
        audits.wait_until(lambda: slurm.run("squeue", "-h", "-j", job) == "", "the job has ended")


@pytest.mark.parametrize(("arguments", "limit_s"), [([], LONGEST_S), (["--time=10"], 600)])
def test_a_job_is_waited_for_until_its_own_limit_or_else_the_longest_of_its_partition(
    slurm, arguments, limit_s
):
    begin, end = end_of_job(slurm, "--partition=train", *arguments)
    until = datetime.datetime.fromisoformat(waits_until(SINCE, [end])) - datetime.timedelta(
        seconds=GRACE_S
    )
    assert until == datetime.datetime.fromisoformat(begin).astimezone() + datetime.timedelta(
        seconds=limit_s
    )


def test_a_job_of_a_partition_without_a_limit_is_waited_for_a_day(slurm):
    _, end = end_of_job(slurm, "--partition=all")
    until = datetime.datetime.fromisoformat(waits_until(SINCE, [end]))
    assert until == datetime.datetime.fromisoformat(SINCE) + datetime.timedelta(seconds=UNLIMITED_S)
