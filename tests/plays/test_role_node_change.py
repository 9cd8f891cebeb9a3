"""The role node_change on a tree in place of `/`: whose lock a role works under, who releases it,
and how few tasks that takes."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import yaml
from fakes.role_play import PROJECT, play_tasks

from unhang.core.ansible.controllers import born, machine
from unhang_node.change.atomic_files import LOCK
from unhang_node.change.journal.node_lock import LockRequest, take_lock

TOKEN = {
    "name": "Tell the token",
    "ansible.builtin.debug": {
        "msg": "token {{ node_change_fencing }}, locked: {{ (node_change_rootfs ~ '"
        + LOCK
        + "') is exists }}, state: {{ node_change_id | length > 0 }}"
    },
}


def part(name):
    """The task that takes a part of the role."""
    return {
        "name": name,
        "ansible.builtin.include_role": {"name": "node_change", "tasks_from": name},
    }


@pytest.fixture
def frame(tmp_path):
    """frame(*tasks, always=[tasks]) -> (code, output) of a play on this machine."""

    def play(*tasks, always=(), **variables):
        block = {"name": "Frame", "block": list(tasks), "always": [*always, TOKEN]}
        node = {
            "node_change_role": "kernel",
            "node_change_rootfs": str(tmp_path / "root"),
            **variables,
        }
        done = play_tasks(tmp_path, {"gpu001": node}, block)
        return done.code, done.output

    (tmp_path / "root").mkdir()
    return play


def told(output):
    """What the tasks TOKEN have printed."""
    return [line.split('"')[3] for line in output.splitlines() if '"msg": "token ' in line]


def test_a_role_works_under_the_lock_of_its_playbook_and_takes_one_where_there_is_none(frame):
    begun = [part("lock"), TOKEN, part("begin"), TOKEN, part("end"), TOKEN, part("unlock"), TOKEN]
    code, output = frame(*begun, part("begin"), TOKEN, part("end"))
    assert code == 0
    assert told(output) == [
        "token 1, locked: True, state: False",
        "token 1, locked: True, state: True",
        "token 1, locked: True, state: False",  # the playbook's lock is not the role's to release
        "token 1, locked: False, state: False",
        "token 2, locked: True, state: True",
        "token 2, locked: False, state: False",
    ]
    # each task costs the controller a process: lock 2, begin 3, end 2, unlock 1
    tasks = [line for line in output.splitlines() if line.startswith("TASK [node_change : ")]
    assert len([line for line in tasks if "Validating arguments" not in line]) == 13


def test_a_lock_that_a_role_has_taken_is_released_where_its_state_could_not_be_opened(
    frame, tmp_path
):
    broken = tmp_path / "root" / "var/lib/unhang/states/20261120T070000Z-kernel"
    broken.mkdir(parents=True)
    (broken / "state.json").write_text("{")
    code, output = frame(part("begin"), always=[part("end")])
    assert code != 0
    assert "20261120T070000Z-kernel" in output
    assert told(output) == []  # no token is kept of a lock under which nothing was begun
    assert not (tmp_path / "root" / LOCK.lstrip("/")).exists()


def test_a_lock_is_taken_over_from_a_process_that_has_ended_here_and_from_no_other(frame, tmp_path):
    ended = subprocess.Popen(["true"])
    gone = {**machine(), "pid": ended.pid, "born": born(ended.pid) or 1}
    ended.wait()
    live = {**machine(), "pid": os.getpid(), "born": born(os.getpid())}
    for controller, takes in ((live, False), (gone, True)):
        (tmp_path / "root" / LOCK.lstrip("/")).unlink(missing_ok=True)
        take_lock(str(tmp_path / "root"), LockRequest("first", "ops@ctl1", controller), 0)
        code, output = frame(part("lock"), part("unlock"), node_change_fencing=0)
        assert (code == 0) is takes
        assert ("took over from run first by ops@ctl1" in output) is takes
        assert ("run first by ops@ctl1 is at work on it" in output) is not takes


def test_a_controller_that_cannot_ask_slurm_is_told_before_a_role_with_a_reboot_changes_anything(
    frame, tmp_path
):
    """Whether or not this machine has Slurm's commands."""
    (tmp_path / "slurm.conf").touch()
    given = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    asks = {"block": [part("can_reboot")], "environment": given}
    code, output = frame(asks, drain_adapter="slurm", node_change_run="r1", node_change_fencing=0)
    assert code != 0
    assert "drain_slurm_host names a host that has Slurm's" in output
    role = yaml.safe_load((PROJECT / "roles/gpu_driver/tasks/main.yml").read_text())
    texts = [json.dumps(step) for step in role[0]["block"]]
    (asked,) = (number for number, text in enumerate(texts) if "can_reboot" in text)
    assert not [text for text in texts[:asked] if "stop.yml" in text or "packages.yml" in text]
