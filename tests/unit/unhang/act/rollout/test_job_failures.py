"""Failed jobs on released nodes, beside those on the others, by the lines of sacct."""

from __future__ import annotations

import pytest

from unhang.act.rollout.job_failures import chance, faults_by_jobs, parse_ended_jobs, why_unwatched

# Lines in the form of `sacct --allocations --noheader --parsable2 --format=JobIDRaw,State,NodeList`
# of Slurm 22.05.
LINES = """\
101|COMPLETED|gpu[003-004]
102|FAILED|gpu001
103|CANCELLED by 1000|gpu001
104|TIMEOUT|gpu002
105|FAILED|None assigned
106|NODE_FAIL|gpu[001-002]
107|COMPLETED|
no line of sacct
108|FAILED|gpu[1-
"""
RELEASED = {"a": "gpu001", "b": "gpu002"}


def jobs(state, node, count, first=1):
    return parse_ended_jobs("".join(f"{first + place}|{state}|{node}\n" for place in range(count)))


def test_jobs_that_ended_are_read_with_their_nodes_and_what_is_no_line_is_skipped():
    found = parse_ended_jobs(LINES)
    assert [(job.id, job.state, sorted(job.nodes)) for job in found if job.id != "105"] == [
        ("101", "COMPLETED", ["gpu003", "gpu004"]),
        ("102", "FAILED", ["gpu001"]),
        ("104", "TIMEOUT", ["gpu002"]),
        ("106", "NODE_FAIL", ["gpu001", "gpu002"]),
    ]


def test_a_job_that_ended_because_of_its_node_is_a_fault():
    found = faults_by_jobs(parse_ended_jobs("7|NODE_FAIL|gpu001\n8|COMPLETED|gpu009\n"), RELEASED)
    assert found == {"a": "jobs failed on it since its release: 7 NODE_FAIL"}


def test_failed_jobs_count_where_more_fail_than_elsewhere():
    found = faults_by_jobs(
        [*jobs("FAILED", "gpu001", 5), *jobs("COMPLETED", "gpu009", 20, 50)], RELEASED
    )
    assert found == {
        "a": (
            "jobs failed on it since its release: 1 FAILED, 2 FAILED, 3 FAILED and 2 more; 5 of 5"
            " jobs failed on the released nodes, 0 of 20 on the others"
        )
    }


@pytest.mark.parametrize(
    "ended",
    [
        [*jobs("FAILED", "gpu001", 5), *jobs("FAILED", "gpu009", 20, 50)],
        [*jobs("FAILED", "gpu001", 1), *jobs("COMPLETED", "gpu009", 20, 50)],
        jobs("FAILED", "gpu001", 9),
        [],
    ],
    ids=["jobs fail everywhere", "one job fails", "nothing to compare with", "no jobs"],
)
def test_failed_jobs_that_chance_gives_too_are_no_fault(ended):
    assert faults_by_jobs(ended, RELEASED) == {}


def test_the_chance_is_that_of_fishers_test():
    assert chance(3, 4, 1, 4) == pytest.approx(17 / 70)  # the lady who tastes tea
    assert chance(0, 5, 5, 5) == 1.0


def test_without_accounting_it_is_told_that_nobody_could_watch():
    assert (
        why_unwatched("slurm", {"rc": 1, "stderr": "Slurm accounting storage is disabled\n"})
        == "sacct: Slurm accounting storage is disabled"
    )
    assert "the scheduler is kubernetes" in why_unwatched("kubernetes", {})
    assert why_unwatched("slurm", {"rc": 0, "stdout": ""}) == ""
