"""`unhang remediate --status`: where each node stands and what comes next, by plan and journal alone, while it runs and after any death."""

from __future__ import annotations

import json

import pytest
from rollout_plans import EVIDENCE, HOSTS, Recorded, planned

from unhang.cli import main
from unhang.rollout.journal import read_journal
from unhang.rollout.status import exit_code, status_of
from unhang.rollout.status_table import render_status


@pytest.fixture
def recorded(tmp_path):
    return Recorded(tmp_path, planned(tmp_path))


def status(recorded):
    return status_of(recorded.plan, read_journal(recorded.folder))


def row(recorded, host="a"):
    return next(one for one in status(recorded)["hosts"] if one["host"] == host)


def test_before_it_begins_every_node_is_to_come(recorded):
    assert status(recorded)["counts"] == {"to come": len(HOSTS)}
    assert "rollout of run 20261120T070000Z-0123456789: not begun" in render_status(status(recorded))
    assert exit_code(status(recorded)) == 1


@pytest.mark.parametrize("step", list(EVIDENCE)[:10])
def test_after_a_death_in_any_step_the_step_and_what_comes_next_are_named(recorded, step):
    recorded.begin()
    recorded.through("a", until=step)
    found = row(recorded)
    assert (found["state"], found["step"]) == ("under way", step)
    assert found["next"].startswith("lock, then ")
    text = render_status(status(recorded))
    assert "under way, or its controller has died; controller 1 by ops@ctl" in text
    assert f"now      in step {step} since " in text


def test_a_node_that_is_proved_names_what_it_came_to_and_what_takes_it_back(recorded):
    recorded.begin()
    recorded.through("a")
    found = row(recorded)
    assert (found["state"], found["gone"], found["running"]) == ("released", ["policy-driver-version"], {"driver": "580.95.05"})
    assert found["boots"] == ["reboot, out of a-boot"]
    text = render_status(status(recorded), "ansible-playbook playbooks/rollback.yml --limit HOST -e unhang_state=STATE")
    assert "versions gpu_driver 535.1 -> 580.95.05" in text
    assert "  ansible-playbook playbooks/rollback.yml --limit a -e unhang_state=s1" in text


def test_who_is_left_drained_says_why_and_who_has_to_look(recorded):
    recorded.begin()
    recorded.through("a", failing="smoke_alone")
    found = row(recorded)
    assert (found["state"], found["why"], found["drained"]) == ("kept", "smoke_alone: it broke", True)
    assert found["boots"] == ["reboot, out of a-boot", "reboot of the rollback, out of a-boot2"]
    assert "a person looks why" in found["next"]


def test_a_torn_line_is_told(recorded):
    recorded.begin()
    with (recorded.folder / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"at":"2026')
    assert 'torn       line 2: {"at":"2026: a controller died while it wrote this' in render_status(status(recorded))


def test_when_all_are_given_back_the_code_is_0(recorded):
    recorded.begin()
    for host in HOSTS:
        recorded.through(host)
    assert exit_code(status(recorded)) == 0


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_says_it_and_starts_nothing(recorded, form, capsys):
    (recorded.folder / "run.json").write_text(json.dumps({"schema": "unhang/run/1", "id": "x", "hosts": [], "inventory": ["inventory/mycluster"]}))
    recorded.begin()
    recorded.through("a")
    before = sorted(path.name for path in recorded.folder.iterdir())
    assert main(["remediate", str(recorded.folder), "--status", "--format", form]) == 1
    said = capsys.readouterr().out
    if form == "json":
        assert json.loads(said)["schema"] == "unhang/rollout-status/1"
    else:
        assert "RELEASED: 1 node, proved healthy and given back" in said
        assert "-i inventory/mycluster --limit a -e unhang_apply=true -e unhang_state=s1" in said
    assert sorted(path.name for path in recorded.folder.iterdir()) == before


def test_a_plan_that_somebody_edited_is_refused_in_one_line(recorded, capsys):
    path = recorded.folder / "plan.json"
    path.write_text(path.read_text().replace("580.95.05", "580.95.06"))
    assert main(["remediate", str(path), "--status"]) == 2
    assert "expected the plan as `unhang plan` wrote it, found one that was edited since" in capsys.readouterr().err
