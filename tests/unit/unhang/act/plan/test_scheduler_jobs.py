"""Jobs of a scheduler beside processes on GPUs: known, not known, and by other names."""

from __future__ import annotations

import pytest

from unhang.act.plan.plan_document import HostPlan, Job
from unhang.act.plan.scheduler_jobs import hosts_to_ask, is_busy, parse_answer, with_jobs

PROCESS = Job(4711, "anna", "python", (0,))
OF_SLURM = Job(None, "bob", None, (), "77")
ANSWER = {
    "nodes": ["gpu001", "gpu002", "node3"],
    "jobs": {"gpu002": [{"id": "77", "user": "bob"}], "node3": [{"id": "", "state": "ALLOCATED"}]},
    "names": {"gpu003": "node3", "gpu004": ""},
}


def host(jobs, scheduler="slurm"):
    return HostPlan("gpu001", None, None, jobs=jobs, scheduler=scheduler)


def test_hosts_are_found_by_their_names_in_the_scheduler_and_others_are_not_known():
    found = parse_answer(ANSWER, ["gpu001", "gpu002", "gpu003", "gpu004"])
    assert found == {
        "gpu001": [],
        "gpu002": [OF_SLURM],
        # busy with a job that the scheduler hides
        "gpu003": [Job(None, None, None, (), "ALLOCATED")],
    }


def test_no_answer_knows_no_host():
    assert parse_answer({"why": "no scontrol here"}, ["gpu001"]) == {}


@pytest.mark.parametrize(
    ("processes", "asked", "jobs"),
    [
        ((), {"gpu001": []}, ()),
        ((PROCESS,), {"gpu001": [OF_SLURM]}, (OF_SLURM, PROCESS)),
        ((PROCESS,), {}, (PROCESS,)),
        ((), {}, None),
        (None, {"gpu001": []}, None),
        (None, {"gpu001": [OF_SLURM]}, (OF_SLURM,)),
        ((OF_SLURM, PROCESS), {"gpu001": []}, (PROCESS,)),
    ],
)
def test_a_host_has_none_only_if_both_say_so(processes, asked, jobs):
    found = with_jobs(host(processes), asked)
    assert found.jobs == jobs
    assert is_busy(found) is (jobs != ())


def test_where_there_is_no_scheduler_nobody_is_asked_and_nothing_is_unknown():
    assert hosts_to_ask([host((), "none"), host((), None)]) == {}
    assert with_jobs(host((), "none"), {}).jobs == ()
    assert with_jobs(host((), None), {}).jobs is None
