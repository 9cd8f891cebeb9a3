"""A rollout has no way of its own to change a node: each step is played by the roles and modules
that a remediation by hand uses."""

from __future__ import annotations

import pytest
import yaml
from local_fleet import PROJECT

from unhang.act.rollout.steps import STEPS

TASKS = PROJECT / "playbooks" / "tasks"
ROLLOUT = TASKS / "rollout"
# What each step is done with: (roles with their file, modules that act on the node, and files of
# tasks that remediation without a plan plays too).
DONE_WITH = {
    "lock": {"node_change lock", "smoke_node"},
    "drain": {"drain drain", "node_lock"},
    "wait": {"drain wait"},
    "save": {"node_baseline"},
    "apply": {"remediate_role.yml", "drain wait", "node_lock"},
    "reboot": {
        "drain wait",
        "node_lock",
        "node_change before_reboot",
        "ansible.builtin.reboot",
        "ansible.builtin.command",  # is it shutting down?
        "node_change after_reboot",
        "state_restore",
    },
    "audit": {"rollout_judge.yml", "node_baseline"},
    "smoke_alone": {"drain wait", "smoke_test main"},
    "smoke_together": {"drain wait", "smoke_test main"},
    "roll_back": {"drain wait", "state_restore"},
    "audit_again": {"rollout_judge.yml", "node_baseline"},
    "audit_back": {"rollout_judge.yml", "node_baseline"},
    "release": {"drain release", "node_baseline", "node_change unlock", "node_lock"},
}
DONE_WITH["reboot_back"] = DONE_WITH["reboot"]
DONE_WITH["keep"] = {"drain drain", "node_baseline", "node_change unlock", "node_lock"}
ONLY_READ_OR_KEEP = {
    "ansible.builtin.assert",
    "ansible.builtin.fail",
    "ansible.builtin.set_fact",
    "ansible.builtin.slurp",
    "gpu_node_info",
}
KEYWORDS = {
    *(
        "name",
        "when",
        "vars",
        "loop",
        "loop_control",
        "register",
        "block",
        "rescue",
        "always",
        "timeout",
        "check_mode",
        "failed_when",
        "changed_when",
    ),
    *(
        "delegate_to",
        "become",
        "run_once",
        "retries",
        "delay",
        "until",
        "no_log",
        "any_errors_fatal",
    ),
}
INCLUDES = ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks")
ROLES = ("ansible.builtin.include_role", "ansible.builtin.import_role")


def used(path):
    """What the tasks of this file, and of the rollout's own files that it includes, are done
    with."""
    return {one for task in yaml.safe_load(path.read_text()) for one in used_by(task, path)}


def used_by(task, path):
    for part in ("block", "rescue", "always"):
        yield from (one for inner in task.get(part, ()) for one in used_by(inner, path))
    [action] = [key for key in task if key not in KEYWORDS] or [None]
    if action in INCLUDES:
        included = (path.parent / str(task[action])).resolve()
        yield from used(included) if included.parent == ROLLOUT else {included.name}
    elif action in ROLES:
        yield f"{task[action]['name']} {task[action].get('tasks_from', 'main')}"
    elif (
        action is not None
        and action not in ONLY_READ_OR_KEEP
        and not (action == "saved_state" and task[action]["state"] == "listed")
    ):
        yield action


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_a_rollout_is_done_with_the_roles_and_modules_that_there_are(step):
    assert used(ROLLOUT / f"{step}.yml") == DONE_WITH[step]


def test_every_file_of_the_rollouts_tasks_is_used_by_a_step():
    # each step, before each wave, after a soak, and where the journal was lost
    begun_by = ("step", "floor", "look_back", "rebuild")
    reached = {
        path.name for name in (*STEPS, *begun_by) for path in files_of(ROLLOUT / f"{name}.yml")
    }
    assert {path.name for path in ROLLOUT.glob("*.yml")} == reached
    played = (PROJECT / "playbooks" / "rollout.yml").read_text()
    assert not [name for name in begun_by if f"tasks/rollout/{name}.yml" not in played]


def files_of(path):
    """The file and those of the rollout's own that it includes."""
    yield path
    for task in yaml.safe_load(path.read_text()):
        yield from (one for included in included_by(task, path) for one in files_of(included))


def included_by(task, path):
    for part in ("block", "rescue", "always"):
        yield from (one for inner in task.get(part, ()) for one in included_by(inner, path))
    for include in INCLUDES:
        if (
            include in task
            and (target := (path.parent / task[include]).resolve()).parent == ROLLOUT
        ):
            yield target


@pytest.mark.parametrize("step", ["apply", "reboot", "roll_back"])
def test_nothing_is_changed_or_booted_before_the_drain_and_the_jobs_were_read_again(step):
    acts = [
        task
        for task in flat(yaml.safe_load((ROLLOUT / f"{step}.yml").read_text()))
        if not task.keys() & {"ansible.builtin.set_fact", "block"}
    ]
    checked = [task.get("ansible.builtin.import_tasks") for task in acts].index("still_free.yml")
    before = {"reboot": ["ours.yml"], "apply": ["ours.yml"], "roll_back": []}
    assert [task["ansible.builtin.import_tasks"] for task in acts[:checked]] == before[step]


def flat(tasks):
    """Tasks in their order, with those of their blocks."""
    for task in tasks:
        yield task
        yield from flat(task.get("block", ()))


@pytest.mark.parametrize("shared", ["remediate_role.yml", "rollout_judge.yml"])
def test_remediation_by_hand_plays_the_same_files(shared):
    by_hand = [
        path for path in TASKS.glob("*.yml") if path.name != shared and shared in path.read_text()
    ]
    assert by_hand, shared
