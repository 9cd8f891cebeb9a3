"""What a rollout shows to a person: what happens, on which nodes, what it waits for, until when,
what to type."""

from __future__ import annotations

import pytest
from rollout_plans import GROUPS, HOSTS, Recorded, planned

from unhang.act.rollout.conductor import begin
from unhang.act.rollout.evidence import drain_evidence
from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.preview import preview_of
from unhang.act.rollout.preview_table import render_preview
from unhang.act.rollout.progress import Progress
from unhang.act.rollout.status import NOW, as_typed_here, status_of
from unhang.act.rollout.status_table import render_status
from unhang.act.rollout.steps import Order, StepResult
from unhang.core.errors import UserError

JOB = {"id": "4711", "user": "alice", "state": "RUNNING", "ends": ""}


@pytest.fixture
def recorded(tmp_path):
    found = Recorded(tmp_path, planned(tmp_path))
    found.begin()
    return found


def shown(recorded, alive=None):
    """The status and the lines while it runs, in one text."""
    entries = read_journal(recorded.folder)
    lines = list(Progress(recorded.plan).feed(entries.entries))
    return render_status(
        status_of(
            recorded.plan,
            entries,
            "unhang remediate --undo RUN",
            lambda _: alive if alive is None else not alive,
        )
    ) + "\n".join(lines)


def test_a_preview_says_not_possible_instead_of_refusing_something(tmp_path):
    plan = planned(tmp_path)
    text = render_preview(
        preview_of(
            plan,
            [
                {
                    "host": "a",
                    "role": "gpu_driver",
                    "task": "t",
                    "status": "failed",
                    "text": "no",
                    "diffs": [],
                    "needs_root": False,
                }
            ],
        )
    )
    assert "3 nodes: 3 cannot be changed as planned" in text


def drained(recorded, jobs):
    recorded.ask("a", "lock", GROUPS, "0")
    assert state_of(recorded, "lock", {"fencing": 7, "boot_id": "a-boot"}) == "done"
    recorded.ask("a", "drain", GROUPS, "0")
    found = drain_evidence({"drained": True, "owned": True, "jobs": jobs}, "slurm", "drain")
    state_of(recorded, "drain", found)


def test_a_node_that_waits_names_the_job_and_until_when(recorded):
    drained(recorded, [JOB])
    text = shown(recorded, alive=True)
    assert "WAITING: 1 node, drained; its jobs have not ended yet" in text
    assert "why      drain: job 4711 of alice until " in text


def test_a_living_rollout_names_the_node_that_it_is_at_and_that_nothing_is_to_be_typed(recorded):
    drained(recorded, [])
    recorded.ask("a", "wait", GROUPS, "0", 600)
    text = shown(recorded, alive=True)
    assert "running, on a\n" in text
    assert f"now      {NOW['wait']} since " in text
    assert "next     nothing to type: the rollout is at work on it" in text


def state_of(recorded, step, evidence):
    """Records the answer to the step that was begun last."""
    node = recorded.standing().node("a")
    return recorded.record(Order("a", step, node.token, node.boot_id), StepResult("ok", evidence))[
        0
    ]


def test_an_edited_policy_is_in_the_status_and_once_in_the_lines_of_several_runs(tmp_path):
    plan = planned(tmp_path)
    for _ in range(3):
        begin(tmp_path, HOSTS, {"by": "ops", "policy_edited": ["a", "b"]}, lambda _: True, "")
    journal = read_journal(tmp_path)
    edited = "unhang_policy of a,b was edited since the plan, which keeps to its own"
    assert edited in status_of(plan, journal)["policy_edited"]
    assert f"policy     {edited}" in render_status(status_of(plan, journal))
    assert "\n".join(Progress(plan).feed(journal.entries)).count(edited) == 1


def test_an_interrupted_rollout_says_so_and_what_to_type(recorded):
    recorded.through("a", until="reboot")
    assert (
        "interrupted, on a: the command was ended or killed; give it again, and it goes on"
        in shown(recorded, alive=False)
    )
    assert "next     the same command goes on: it reboots it" in shown(recorded, alive=False)


def test_who_typed_a_command_is_told_the_option_of_the_command_and_the_playbook_its_variable(
    tmp_path,
):
    planned(tmp_path)
    begin(tmp_path, HOSTS, {"by": "ops@ctl"}, lambda _: True, "")
    with pytest.raises(
        UserError,
        match=r"when that one is over for sure: unhang remediate RUN --apply --take-over$",
    ):
        begin(
            tmp_path,
            HOSTS,
            {"by": "ops@ctl"},
            lambda _: False,
            "",
            command="unhang remediate RUN --apply",
        )
    with pytest.raises(UserError, match="for sure: -e unhang_take_over="):
        begin(tmp_path, HOSTS, {"by": "ops@ctl"}, lambda _: False, "")
    assert (
        as_typed_here("next: -e unhang_take_over=R1")
        == "next: --ansible=-e --ansible=unhang_take_over=R1"
    )
