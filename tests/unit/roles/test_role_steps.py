"""Roles use the same names and tags for the same steps: a step is one file, whose name is its
tag."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[3]
ROLES = sorted(path for path in (PROJECT / "roles").iterdir() if (path / "tasks").is_dir())
# other playbooks and roles take files of theirs; a part of a smoke test or an undo is none
WITHOUT_TAGS = ("drain", "node_change", "smoke_test", "undo")
# packages cannot be changed while services hold the GPUs
OTHER_TAGS = {"gpu_driver/stop": "packages"}
STEPPED = [role for role in ROLES if role.name not in WITHOUT_TAGS]
STEP_VERBS = {
    "Boot", "Build", "Disable", "Enable", "Enlarge", "Fall", "Hold", "Install", "Keep", "Load",
    "Make",
    "Plan", "Prevent", "Reboot", "Reload", "Remove", "Set", "Start", "Stop", "Verify", "Write",
}  # fmt: skip
SAME_NAMES = {
    "begin": "Lock the node and begin a saved state",
    "step": "Record the next step",
    "before_reboot": "Keep the lock across the reboot",
    "after_reboot": "Renew the lock after the reboot",
    "failed": "Record the failure",
    "end": "Unlock the node",
}


def all_tasks(tasks):
    """Every task of a list, those in blocks too."""
    for task in tasks or []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from all_tasks(task.get(part))


def tasks_of(path):
    document = yaml.safe_load(path.read_text()) or []
    plays = [
        task
        for play in document
        for part in ("pre_tasks", "tasks", "post_tasks")
        for task in all_tasks(play.get(part))
    ]
    return [*all_tasks(document), *plays]


def steps_of(role):
    """(task, name of the file that it includes, whether the file's tasks get its tag) of
    tasks/main.yml."""
    for task in tasks_of(role / "tasks" / "main.yml"):
        given = task.get("ansible.builtin.import_tasks")
        if given:
            yield task, Path(given).stem, True
        given = task.get("ansible.builtin.include_tasks")
        if given:  # Ansible gives the tag of an include to the include alone
            file, applied = (
                (given, {}) if isinstance(given, str) else (given["file"], given.get("apply", {}))
            )
            yield task, Path(file).stem, applied.get("tags") == task.get("tags")


@pytest.mark.parametrize("role", STEPPED, ids=lambda role: role.name)
def test_a_step_has_the_tag_of_its_file(role):
    steps = list(steps_of(role))
    assert steps
    assert [
        (name, task.get("tags"))
        for task, name, _ in steps
        if task.get("tags") not in ("always", OTHER_TAGS.get(f"{role.name}/{name}", name))
    ] == []


@pytest.mark.parametrize("role", STEPPED, ids=lambda role: role.name)
def test_a_run_with_the_tag_of_a_step_runs_what_is_in_it(role):
    assert [name for _, name, reached in steps_of(role) if not reached] == []


@pytest.mark.parametrize("role", STEPPED, ids=lambda role: role.name)
def test_every_task_of_the_table_of_contents_has_a_tag(role):
    assert [
        task["name"]
        for task in tasks_of(role / "tasks" / "main.yml")
        if "block" not in task and not task.get("tags")
    ] == []


def test_parts_of_the_frame_have_one_name_in_all_roles_and_playbooks():
    found = set()
    for path in [
        *(PROJECT / "roles").glob("*/tasks/*.yml"),
        *(PROJECT / "playbooks").rglob("*.yml"),
    ]:
        for task in tasks_of(path):
            taken = (
                task.get("ansible.builtin.import_role")
                or task.get("ansible.builtin.include_role")
                or {}
            )
            if taken.get("name") == "node_change" and taken.get("tasks_from") in SAME_NAMES:
                found.add((taken["tasks_from"], task["name"]))
    assert found == set(SAME_NAMES.items())


def test_roles_and_files_are_taken_in_one_form():
    """A line for each key, so that all of them can be found by the same search."""
    texts = {
        path: path.read_text()
        for top in ("roles", "playbooks")
        for path in (PROJECT / top).rglob("*.yml")
    }
    assert len(texts) > 100
    assert [
        str(path.relative_to(PROJECT))
        for path, text in texts.items()
        if re.search(r"(?:import|include)_(?:role|tasks): *\{", text)
    ] == []


def test_steps_are_named_by_what_they_do():
    """The name begins with a verb; a new one is added here."""
    names = [task["name"] for role in STEPPED for task, _, _ in steps_of(role)]
    assert len(names) > 40
    assert [name for name in names if name.split()[0] not in STEP_VERBS] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("package_offers", "List what repositories offer"),
        ("gpu_users", "List who uses the GPUs"),
        ("boot_trial", "Read the boot entries of the node"),
    ],
)
def test_reading_modules_have_one_name_in_all_roles(module, name):
    found = [
        task["name"]
        for role in ROLES
        for path in (role / "tasks").glob("plan.yml")
        for task in tasks_of(path)
        if module in task
    ]
    assert found
    assert set(found) == {name}
