"""What the proof of a rollout needs is asked in its preview and before a node is locked: a node on
which the smoke test finds no torch is refused, with nothing changed and the option that helps."""

from __future__ import annotations

import sys

import pytest
from fakes.role_play import PROJECT, play_tasks

DEADLINE_S = 600
TASKS = PROJECT / "playbooks" / "tasks" / "rollout"


@pytest.fixture
def pythons(tmp_path):
    """{host: a Python on the node}: with torch, without it, and one that is not there."""
    torch = tmp_path / "site" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise RuntimeError('it was imported')\n")
    for name, line in (
        ("able", f'PYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"'),
        ("unable", f'exec {sys.executable} -S -I "$@"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    return {name: str(tmp_path / name) for name in ("able", "unable", "absent")}


def played(folder, pythons, *arguments, **variables):
    """The task file on each node, then a task that a refused node does not reach."""
    tasks = [
        {"name": "Check", "ansible.builtin.include_tasks": str(TASKS / "can_prove.yml")},
        {"name": "Begin", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} begins"}},
    ]
    hosts = {name: {"smoke_test_python": one, **variables} for name, one in pythons.items()}
    return play_tasks(folder, hosts, *tasks, arguments=arguments)


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_node_without_torch_is_refused_in_the_preview_and_before_it_is_locked(
    tmp_path, pythons, arguments
):
    run = played(tmp_path, pythons, *arguments)
    assert run.failed == {"able": 0, "unable": 1, "absent": 1}
    said = " ".join(run.output.split())
    assert f"the node does not have torch in {pythons['unable']}: the smoke test could not" in said
    assert "--no-smoke" in said
    assert f"the node does not have torch in {pythons['absent']}" in said
    assert "able begins" in said
    assert not {"unable begins", "absent begins"} & set(run.output.split('"'))


def test_without_a_smoke_test_nothing_is_asked(tmp_path, pythons):
    assert played(tmp_path, pythons, unhang_smoke=False).code == 0


def test_a_test_in_an_image_asks_for_the_runtime_and_for_no_torch_of_the_node(tmp_path, pythons):
    image = {"smoke_test_container_image": "site/torch:26.10"}
    run = played(tmp_path, pythons, **image, smoke_test_container_runtime="no-such-runtime")
    assert set(run.failed.values()) == {1}
    said = " ".join(run.output.split())
    assert "the node does not have no-such-runtime: the smoke test could not prove" in said
    assert played(tmp_path, pythons, **image, smoke_test_container_runtime="sh").code == 0


def test_preview_and_lock_ask_before_anything_else():
    rollout = (PROJECT / "playbooks" / "rollout.yml").read_text()
    preview = rollout[rollout.index("- name: Preview the plan") :]
    assert preview.index("tasks/rollout/can_prove.yml") < preview.index("tasks/remediate_node.yml")
    lock = (TASKS / "lock.yml").read_text()
    assert lock.index("can_prove.yml") < lock.index("tasks_from: lock")
