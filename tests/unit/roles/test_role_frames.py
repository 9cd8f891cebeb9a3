"""Every role that changes a node has a lock, a saved state, and a preview that changes nothing in
any way of asking for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[3]
# drain changes the scheduler, and nothing on the node; undo restores, in a rollout's lock
NOT_ACTING = ("node_change", "smoke_test", "drain", "undo")
ROLES = sorted(path for path in (PROJECT / "roles").iterdir() if (path / "tasks").is_dir())
ACTING = [path for path in ROLES if path.name not in NOT_ACTING]


def tasks_of(role):
    """(file name, task) of every task of a role, those in blocks too."""
    waiting = [
        (path.name, task)
        for path in sorted((role / "tasks").glob("*.yml"))
        for task in yaml.safe_load(path.read_text()) or []
    ]
    while waiting:
        name, task = waiting.pop()
        yield name, task
        waiting += [
            (name, inner) for part in ("block", "rescue", "always") for inner in task.get(part, [])
        ]


def frame_part(task):
    """The part of node_change that a task includes, or None."""
    included = (
        task.get("ansible.builtin.import_role") or task.get("ansible.builtin.include_role") or {}
    )
    return included.get("tasks_from") if included.get("name") == "node_change" else None


@pytest.mark.parametrize("role", ACTING, ids=lambda role: role.name)
def test_a_role_that_acts_locks_the_node_and_saves_its_state(role):
    framed = [
        task
        for task in yaml.safe_load((role / "tasks" / "main.yml").read_text())
        if "rescue" in task
    ]
    assert len(framed) == 1, "expected one block with rescue and always in tasks/main.yml"
    parts = {
        part: [frame_part(task) for task in framed[0][part]]
        for part in ("block", "rescue", "always")
    }
    assert "begin" in parts["block"]
    assert parts["rescue"][-1] == "failed"
    assert parts["always"][-1] == "end"
    begun = next(task for task in framed[0]["block"] if frame_part(task) == "begin")
    assert begun["vars"]["node_change_role"] == role.name
    assert all(
        task["tags"] == "always" for part in parts for task in framed[0][part] if frame_part(task)
    ), "a run with --tags has to have its frame too"


@pytest.mark.parametrize("role", ACTING, ids=lambda role: role.name)
def test_what_a_module_changes_is_saved_where_it_can_be(role):
    taking = {
        path.stem
        for path in (PROJECT / "library").glob("*.py")
        if '"state_id": {' in path.read_text()
    }
    acting = [
        (name, task, module)
        for name, task in tasks_of(role)
        for module in taking & task.keys()
        if not only_looks(task, module)
    ]
    assert [
        f"{name}: {task['name']}" for name, task, module in acting if "state_id" not in task[module]
    ] == []
    assert [
        f"{name}: {task['name']}" for name, task, module in acting if "fencing" not in task[module]
    ] == [], "a run that lost the node has to be stopped"


def test_a_preview_asks_a_node_for_nothing_that_a_saved_state_is_needed_for():
    closing = ("step.yml", "end.yml", "failed.yml")
    saving = [
        (name, task)
        for name, task in tasks_of(PROJECT / "roles" / "node_change")
        if name in closing and "saved_state" in task
    ]
    assert len(saving) == 3
    opened = "node_change_id | default('') | length > 0"
    own_lock = "__node_change_lock.acquired | default(false)"  # never in check mode
    assert {name: task["when"] for name, task in saving} == {
        "step.yml": opened,
        "failed.yml": opened,
        "end.yml": f"{opened} or {own_lock}",
    }


def test_a_role_of_a_preview_does_not_ask_for_the_lock_again():
    [taking] = [
        task
        for name, task in tasks_of(PROJECT / "roles" / "node_change")
        if name == "begin.yml" and task.get("ansible.builtin.import_tasks") == "take.yml"
    ]
    assert taking["when"] == (
        "not (__node_change_locked.rootfs | default('') == node_change_rootfs and"
        " (__node_change_locked.acquired | default(false) or"
        " __node_change_locked.previews | default(false)))"
    )


FENCED = {
    path.stem for path in (PROJECT / "library").glob("*.py") if '"fencing": {' in path.read_text()
}
CHANGING = (
    "file",
    "copy",
    "template",
    "lineinfile",
    "systemd_service",
    "service",
    "package",
    "command",
    "shell",
    "reboot",
)


def lists_of_tasks(tasks):
    """Every list of tasks, those of blocks too."""
    yield tasks
    for task in tasks:
        for part in ("block", "rescue", "always"):
            yield from lists_of_tasks(task.get(part, []))


def rows_of(places):
    """(place, task, the tasks before it in its list) of task files and playbooks."""
    for path in places:
        document = yaml.safe_load(path.read_text()) or []
        for tasks in [
            one for play in document for one in lists_of_tasks(play.get("tasks", []))
        ] + list(lists_of_tasks(document)):
            yield from (
                (f"{path.relative_to(PROJECT)}: {task.get('name')}", task, tasks[:place])
                for place, task in enumerate(tasks)
            )


def acting_files():
    """Task files of the roles that change a node, of their frame, and of the playbooks."""
    roles = [
        path
        for role in ROLES
        if role.name not in ("smoke_test", "drain")
        for path in sorted((role / "tasks").glob("*.yml"))
    ]
    return roles + sorted((PROJECT / "playbooks").rglob("*.yml"))


def test_every_module_that_acts_is_given_the_locks_number():
    without = []
    for place, task, _ in rows_of(acting_files()):
        for module in FENCED & task.keys():
            if (
                not only_looks(task, module)
                and task[module].get("state") not in ("listed", "inspected")
                and "fencing" not in task[module]
            ):
                without.append(place)
    assert without == []


def test_what_ansibles_own_modules_change_has_the_lock_demanded_before():
    bare = []
    for place, task, before in rows_of(acting_files()):
        module = next((name for name in CHANGING if f"ansible.builtin.{name}" in task), None)
        if module is None or "delegate_to" in task or task.get("changed_when") is False:
            continue
        wanted = (
            [{"before_reboot"}, before[-1:]]
            if module == "reboot"
            else [{"step", "before_reboot"}, before]
        )
        if not any(frame_part(one) in wanted[0] for one in wanted[1]):
            bare.append(place)
    assert bare == [], (
        "saved_state and node_lock stop a run that lost the node; Ansible's own modules do not"
    )


def only_looks(task, module):
    """True for a task that never changes anything."""
    return task.get("check_mode") is True or task[module].get("state") == "inspected"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_preview_is_one_however_it_was_asked_for(role):
    if role.name == "smoke_test":
        return  # changes nothing that is to be previewed, and no playbook previews it by itself
    naming = [
        path.name
        for path in (role / "tasks").glob("*.yml")
        if "ansible_check_mode" in path.read_text()
    ]
    assert naming == [], "ansible_check_mode knows --check alone; ask node_change_previews"
