"""What Slurm says of a job's end is the cause of its end, unless the job had failed or stood
before."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

STEPS = "".join(f"step {place}00 | loss 2.{place} | 800 ms/step\n" for place in range(9))
LINE = "slurmstepd: error: *** JOB 7007 ON n17 CANCELLED AT 2026-02-03T04:05:06{} ***\n"
LIMIT, PREEMPTED, LOST, CANCELLED = (
    LINE.format(why)
    for why in (
        " DUE TO TIME LIMIT",
        " DUE TO PREEMPTION",
        " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
        "",
    )
)
SWEPT = (
    "W0203 04:05:06.3 812 torch/distributed/elastic/agent/server/api.py:704] Received"
    " Signals.SIGTERM death signal, shutting down workers\nsrun: error: n18: task 9: Killed\n"
)
TABLE = """JobID             State ExitCode     MaxRSS     ReqMem    Elapsed  Timelimit
------------ ---------- -------- ---------- ---------- ---------- ----------
7007      {:>13}      0:0                  500G   08:00:12   08:00:00
7007.batch    CANCELLED     0:15   8123456K              08:00:14
7007.0        CANCELLED     0:15  91234567K              08:00:13
"""


WATCHDOG = (
    "[rank3]:[E203 03:50:00.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=9001, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024,"
    " Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
)


def first(text):
    """(cause, title, certainty, owner) of the first cause above a remark; None without one."""
    named = [one for one in diagnose_text(text)["causes"] if one["severity"] != "info"]
    return (
        tuple(named[0][name] for name in ("cause", "title", "certainty", "owner"))
        if named
        else None
    )


@pytest.mark.parametrize(
    ("text", "title", "certainty"),
    [
        (STEPS + LIMIT + SWEPT, "Slurm ended the job at its time limit", "likely"),
        (
            STEPS + LIMIT + SWEPT + "$ sacct -j 7007 -o JobID,State\n" + TABLE.format("TIMEOUT"),
            "Slurm ended the job at its time limit",
            "likely",
        ),
        (LIMIT, "Slurm ended the job at its time limit", "likely"),
        (TABLE.format("TIMEOUT"), "Slurm ended the job at its time limit", "likely"),
        ("7007|train|gpu|lab|64|TIMEOUT|0:0\n", "Slurm ended the job at its time limit", "likely"),
        (STEPS + PREEMPTED + SWEPT, "The scheduler took the job's nodes for another job", "sure"),
        (TABLE.format("PREEMPTED"), "The scheduler took the job's nodes for another job", "sure"),
        (STEPS + CANCELLED, "Somebody cancelled the job", "possible"),
        (TABLE.format("CANCELLED+"), "Somebody cancelled the job", "possible"),
        (
            "7007   CANCELLED by 1001      0:0      500G   08:00:12\n",
            "Somebody cancelled the job",
            "possible",
        ),
    ],
)
def test_reason_of_slurm_is_the_cause(text, title, certainty):
    assert first(text) == ("ended_by_scheduler", title, certainty, "user")


@pytest.mark.parametrize(
    "text",
    [
        STEPS + LOST + "srun: error: Node failure on n18\n" + SWEPT,
        TABLE.format("NODE_FAIL") + "srun: error: Node failure on n18\n",
    ],
)
def test_lost_node_is_named_and_belongs_to_who_runs_the_cluster(text):
    named = [one for one in diagnose_text(text)["causes"] if one["severity"] != "info"]
    assert [(one["title"], one["owner"], one["where"]) for one in named] == [
        ("A node of the job was lost", "sre", ["host n18"])
    ]
    assert "oom" not in {one["cause"] for one in diagnose_text(text)["causes"]}


def test_cancelled_job_is_asked_who_cancelled_it_and_not_for_releases_of_libraries():
    found = diagnose_text(STEPS + CANCELLED)
    assert found["next"]["command"].startswith("sacct -j ")
    assert not any("pip list" in one for one in found["collect_next"])


def test_accounting_of_a_job_that_failed_is_read():
    outcome = diagnose_text(
        "7007            FAILED      1:0                  500G   00:10:12   08:00:00\n"
    )["outcome"]
    assert outcome["word"] == "failure" and "exit code 1" in outcome["why"]


START = (
    "Map: 100%|##########| 4000/4000 [00:10<00:00, 400 examples/s]\n| distributed init (rank 0):"
    " env://\n| distributed init (rank 1): env://\n"
)


@pytest.mark.parametrize(
    "text", [START + LIMIT, "Loading data...\nBuilding model...\nwaits at the barrier\n" + LIMIT]
)
def test_job_without_a_step_may_have_hung_before_its_time_limit(text):
    assert (first(text) or ("", "", "possible"))[2] == "possible"


@pytest.mark.parametrize(
    "line", ["12 TIMEOUT waiting for lock\n", "3 PREEMPTED requests\n", "   4 CANCELLED\n"]
)
def test_line_that_begins_with_a_number_is_no_row_of_the_accounting(line):
    assert first(line + STEPS) is None


def test_pod_that_was_taken_away_for_another_one_is_not_this_job_whose_steps_follow():
    assert (
        first("5m Normal Preempted pod/low-prio Preempted by pod 8c1f on node n2\n" + STEPS) is None
    )


@pytest.mark.parametrize(
    "text",
    [
        STEPS + WATCHDOG + LIMIT,
        "n17:811:811 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.7<0>\nn17:811:811 [0] NCCL INFO"
        " comm 0x55 rank 0 nranks 8 - Init START\n" + LIMIT,
        STEPS + WATCHDOG + CANCELLED,
        STEPS + "srun: error: n18: task 9: Out Of Memory\n" + LIMIT,
        "slurmstepd: error: *** STEP 7007.0 ON n17 CANCELLED AT 2026-02-03T04:05:06 ***\n",
    ],
)
def test_end_of_a_job_that_failed_or_stood_before_is_not_the_cause(text):
    answer = first(text)
    assert answer is None or answer[0] != "ended_by_scheduler"


@pytest.mark.parametrize(
    "line",
    [
        "\tthe actor's node was preempted: the spot instance will be reclaimed",
        "    message: 'default-scheduler: preempting to accommodate a higher priority pod'",
        "Message:          Pod was terminated in response to imminent node shutdown.",
    ],
)
def test_node_that_was_taken_back_is_not_one_to_look_at(answer, line):
    lost = "  Warning  NodeNotReady  2m  node-controller  Node is not ready\n"
    found = answer(f"[rank0]: step 812 loss 2.31\n{lost}{line}\n")
    assert found["causes"][0]["cause"] == "ended_by_scheduler"
    assert "look at the node" not in str(found["causes"][0]["remedy"])
