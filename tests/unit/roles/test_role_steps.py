"""Roles use the same names and tags for the same steps: a step is one file, whose name is its
tag."""

from __future__ import annotations

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
