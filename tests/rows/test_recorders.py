"""What diagnose says of flight recorders' dumps: who is waited for, and nothing of who is sound."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from flight_dumps import (
    BORN_NS,
    Job,
    as_json,
    as_pickle,
    changed,
    dumps_of,
    job_of,
    place_of,
    play,
)
from job_diagnosis import diagnose

from unhang.jobs.diagnose.rendering import render_table

VERDICTS = Path(__file__).parents[1] / "fixtures" / "verdicts"


def answer_of(folder: Path, dumps: dict[int, dict], form=as_pickle, after_s=600) -> dict:
    """after_s: from the last call of a job to its dumps."""
    for rank, dump in dumps.items():
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(form(dump))
        written_s = BORN_NS / 1e9 + after_s
        os.utime(path, (written_s, written_s))
    return diagnose([str(folder)])


def stopped(rank: int) -> Job:
    job = job_of(2, 2, 2)
    job.stops[rank] = place_of(job, rank, "_reduce_scatter_base")
    return job


@pytest.mark.parametrize("form", [as_pickle, as_json])
def test_the_rank_that_others_wait_for_is_named_and_its_cause_is_not_sure(tmp_path, form):
    job = stopped(3)
    answer = answer_of(tmp_path, dumps_of(job, play(job)), form)
    first = answer["causes"][0]
    assert (first["cause"], first["where"]) == ("slow_rank_or_io", ["rank 3"])
    assert first["certainty"] == "likely"
    assert answer["facts"]["flight_recorder"]["waited_for"]["certainty"] == "sure"
    assert {one["certainty"] for one in answer["causes"] if one is not first} <= {"possible"}


@pytest.mark.parametrize(
    ("after_s", "words"),
    [(1, "the job went on while these dumps were made"), (600, "no rank that")],
)
def test_dumps_that_accuse_nobody_are_said_to(tmp_path, after_s, words):
    job = job_of(2, 2, 2)
    answer = answer_of(tmp_path, dumps_of(job, play(job)), after_s=after_s)
    assert (answer["outcome"]["word"], answer["found"]) == ("no_end", False)
    assert words in answer["outcome"]["why"]


def test_followers_are_said_to_follow(tmp_path):
    job = job_of(2, 4, 2)
    job.stops[3] = place_of(job, 3, "all_reduce", "tp")
    answer = answer_of(tmp_path, dumps_of(job, play(job)))
    waits = answer["facts"]["flight_recorder"]["waited_for"]["waits"]
    assert {wait["role"] for wait in waits} == {"awaited", "follows"}
    text = " ".join(render_table(answer).split())
    assert "rank 3 is waited for" in text and "wait behind it" in text


def test_a_rank_without_dump_that_all_wait_for_is_said_to_have_none(tmp_path):
    job = stopped(3)
    dumps = dumps_of(job, play(job))
    del dumps[3]
    answer = answer_of(tmp_path, dumps)
    assert answer["causes"][0]["where"] == ["rank 3"]
    assert "without a line or dump here: rank 3" in answer["causes"][0]["evidence"][0]["text"]


LATE = (
    "[rank{rank}]:[E619 14:12:11.8 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=700, OpType=ALLREDUCE, NumelIn=64, NumelOut=64,"
    " Timeout(ms)=600000) ran for 600036 milliseconds before timing out.\n"
    "[rank{rank}]:[E619 14:12:11.9 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank {rank}]"
    " Exception (either an error or timeout) detected by watchdog at work: 700, last enqueued NCCL"
    " work: 700, last completed NCCL work: 699.\n"
)


def test_of_two_without_a_dump_the_log_tells_which_is_waited_for(tmp_path):
    job = job_of(1, 1, 8)
    job.stops[3] = place_of(job, 3, "all_reduce", "default_pg")
    dumps = dumps_of(job, play(job))
    del dumps[3], dumps[6]
    waited = answer_of(tmp_path, dumps)["waited_for"]
    assert (waited["roots"]["ranks"], waited["certainty"]) == ("3,6", "possible")
    log = "".join(LATE.format(rank=rank) for rank in range(8) if rank != 3)
    (tmp_path / "job.log").write_text(log, encoding="utf-8")
    waited = answer_of(tmp_path, dumps)["waited_for"]
    assert (waited["roots"]["ranks"], waited["certainty"]) == ("3", "likely")


def test_a_true_mismatch_is_sure_and_names_the_odd_rank(tmp_path):
    job = job_of(2, 2, 2)
    changed(job, 5, place_of(job, 5, "all_reduce", "default_pg"), elements=99)
    first = answer_of(tmp_path, dumps_of(job, play(job)))["causes"][0]
    assert (first["cause"], first["where"], first["certainty"]) == (
        "rank_desync_app",
        ["rank 5"],
        "sure",
    )
    assert "all_reduce 99 elements, Float: rank 5" in first["evidence"][0]["text"]


def test_a_ring_has_its_own_words(tmp_path):
    job = job_of(4, 1, 1, ahead=50)
    program = job.programs[2]
    last = place_of(job, 2, "all_reduce", "default_pg")
    program.insert(place_of(job, 2, "all_reduce", "tp"), program.pop(last))
    first = answer_of(tmp_path, dumps_of(job, play(job)))["causes"][0]
    assert first["cause"] == "rank_desync_app" and first["certainty"] != "sure"
    assert "called the groups in unlike order" in first["evidence"][0]["text"]


@pytest.mark.parametrize(("after_s", "is_told"), [(0.5, False), (600, True)])
def test_a_wait_that_began_the_moment_before_the_dump_is_none(tmp_path, after_s, is_told):
    job = stopped(3)
    answer = answer_of(tmp_path, dumps_of(job, play(job)), after_s=after_s)
    assert bool(answer["causes"]) == is_told


@pytest.mark.parametrize("scene", ["data-healthy-running", "tensor-healthy-running"])
def test_dumps_and_stacks_of_a_running_job_are_no_short_timeout(tmp_path, scene):
    with tarfile.open(VERDICTS / f"{scene}.tar.xz") as archive:
        archive.extractall(tmp_path)  # our own; 3.11.2 has no filter
    names = [*tmp_path.glob("dumps/*"), *tmp_path.glob("stacks/*.txt"), tmp_path / "log.txt"]
    answer = diagnose([str(name) for name in [*names, tmp_path / "ras.txt"]])
    assert [one["cause"] for one in answer["causes"] if one["severity"] != "info"] == []
