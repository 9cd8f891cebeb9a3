"""Refusals of playbooks that change nodes, and the failure limit alone: with all hosts in one
batch, and where Ansible's own limit does not work."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from fakes.role_play import DEADLINE_S, PROJECT, environment, read_play


def check_limit(
    folder,
    healthy,
    applies,
    part="check_failure_limit.yml",
    playbook="remediate",
    of_the_inventory="",
):
    """Played of a single task. healthy: hosts that were proved; of_the_inventory: variables of all
    hosts there, as YAML."""
    play = yaml.safe_load((PROJECT / "playbooks" / f"{playbook}.yml").read_text())[-1]
    proved = {
        "ansible.builtin.set_fact": {"rollout_verdict": "healthy"},
        "when": f"inventory_hostname in {healthy}",
    }
    task = next(
        task
        for task in play["tasks"]
        if task.get("ansible.builtin.import_tasks", "").endswith(part)
    )
    task["ansible.builtin.import_tasks"] = str(
        PROJECT / "playbooks" / task["ansible.builtin.import_tasks"]
    )
    play = {**play, "serial": "100%", "pre_tasks": [proved], "tasks": [task]}
    path = folder / "limit.yml"
    path.write_text(yaml.safe_dump([play]))
    given = ["-e", f"unhang_apply={applies}", "-e", f"ansible_python_interpreter={sys.executable}"]
    (folder / "group_vars").mkdir()
    (folder / "group_vars" / "all.yml").write_text(of_the_inventory)
    (folder / "hosts").write_text("a\nb\nc\n")
    command = ["ansible-playbook", str(path), "-i", str(folder / "hosts"), "-c", "local", *given]
    options = {
        "cwd": PROJECT,
        "env": environment(folder),
        "capture_output": True,
        "text": True,
        "timeout": DEADLINE_S,
        "stdin": subprocess.DEVNULL,
    }
    return read_play(subprocess.run(command, **options))


# (playbook, hosts that were proved healthy, whether it applies, hosts that are not touched); both
# playbooks import the same tasks
LIMITED = [
    ("remediate", ["a", "b"], True, []), ("remediate", ["a"], True, ["c"]),
    ("remediate", ["b"], True, ["b", "c"]), ("remediate", [], False, []),
    ("rollback", ["b"], True, ["b", "c"]), ("rollback", [], False, []),
]  # fmt: skip


@pytest.mark.parametrize(("playbook", "healthy", "applies", "stopped"), LIMITED)
def test_no_node_is_touched_behind_one_that_was_not_proved_healthy(
    tmp_path, healthy, applies, stopped, playbook
):
    played = check_limit(tmp_path, healthy, applies, playbook=playbook)
    assert [host for host, failed in sorted(played.failed.items()) if failed] == stopped
    for host in stopped:
        assert f"which was not proved healthy; {host} was not touched" in played.output


def test_a_rollback_takes_one_node_at_a_time_and_checks_the_limit_before_it_reads_the_next():
    play = yaml.safe_load((PROJECT / "playbooks" / "rollback.yml").read_text())[-1]
    assert play["serial"] == "{{ 1 if unhang_apply | default(false) | bool else '100%' }}"
    names = [task.get("ansible.builtin.import_tasks") for task in play["tasks"]]
    assert names[:2] == ["tasks/refuse_batch.yml", "tasks/check_failure_limit.yml"]


def test_a_switch_that_stands_in_the_inventory_never_changes_all_nodes_at_once(tmp_path):
    played = check_limit(tmp_path, ["a", "b", "c"], True, part="refuse_batch.yml")
    assert sorted(host for host, failed in played.failed.items() if failed) == ["a", "b", "c"]
    assert (
        "unhang_apply is in the inventory, not on the command line (-e unhang_apply=true)"
        in " ".join(played.output.split())
    )


def test_a_plan_that_stands_in_the_inventory_is_not_ignored(tmp_path):
    played = check_limit(
        tmp_path,
        ["a", "b", "c"],
        True,
        part="refuse_inventory_plan.yml",
        of_the_inventory="unhang_plan: runs/r1/plan.json\n",
    )
    assert sorted(host for host, failed in played.failed.items() if failed) == ["a", "b", "c"]
    assert (
        "unhang_plan is in the inventory, where it is ignored, not on the command line (-e unhang_plan=runs/r1/plan.json)"
        in " ".join(played.output.split())
    )


@pytest.mark.parametrize("playbook", ["remediate", "rollback", "preprovision", "smoke"])
def test_a_range_in_the_limit_is_refused_before_any_node_is_asked(tmp_path, playbook):
    (tmp_path / "hosts").write_text(
        "[gpu]\n"
        + "".join(f"gpu00{number} ansible_host=192.0.2.{number}\n" for number in range(1, 6))
    )
    command = [
        "ansible-playbook",
        f"playbooks/{playbook}.yml",
        "-i",
        str(tmp_path / "hosts"),
        "--limit",
        f"@{tmp_path}/limit",
        "-e",
        "unhang_apply=true",
    ]
    (tmp_path / "limit").write_text("gpu[001-003]\n")
    options = {
        "cwd": PROJECT,
        "env": environment(tmp_path),
        "capture_output": True,
        "text": True,
        "timeout": DEADLINE_S,
        "stdin": subprocess.DEVNULL,
    }
    played = read_play(subprocess.run(command, **options))
    assert played.code == 2
    assert "--limit gpu[001-003] can be read in two ways" in " ".join(played.output.split())
    assert "UNREACHABLE" not in played.output
