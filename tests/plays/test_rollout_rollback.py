"""Steps of a rollout's rollback that depend on the node's answer, because the controller that began
the rollback may be dead."""

from __future__ import annotations

import json
import sys

import pytest
from fakes.role_play import PROJECT, run_book, write_hosts

RUN, OTHERS = "20261120T070000Z-0123456789", "20261119T070000Z-0123456789"
DEADLINE_S = 600
# The node's side: which saved states it has, and what it is asked to restore.
PLUGIN = """
from ansible.plugins.action import ActionBase
class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        {body}
"""
LISTED = "return {'changed': False, 'states': task_vars['node_states']}"
RESTORED = (
    "open(task_vars['restored'], 'a').write(f\"{self._task.args['run']}"
    " {self._task.args['through']} {self._task.args['fencing']}\\n\"); return {'changed': True,"
    " 'reboot_needed': False}"
)


@pytest.mark.parametrize("through", [False, True])
def test_what_has_to_wait_for_the_reboot_is_restored_by_whoever_goes_on(tmp_path, through):
    """A kernel's packages wait until the kernel no longer runs: the node itself knows which of the
    run's states are not rolled back yet."""
    states, restored = [(RUN, "rolled_back"), (OTHERS, "finished")], [f"{RUN} {through} 7"]
    tasks, plugins = tmp_path / "tasks", tmp_path / "plugins"
    tasks.mkdir()
    plugins.mkdir()
    for name in ("reboot_back.yml", "restore_rest.yml"):
        (tasks / name).write_text((PROJECT / "playbooks" / "tasks" / "rollout" / name).read_text())
    (tasks / "reboot.yml").write_text("- name: Boot\n  ansible.builtin.meta: noop\n")
    for name, body in (("saved_state", LISTED), ("state_restore", RESTORED)):
        (plugins / f"{name}.py").write_text(PLUGIN.format(body=body))
    (tmp_path / "play.yml").write_text(
        json.dumps(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "tasks": [{"ansible.builtin.include_tasks": "tasks/reboot_back.yml"}],
                }
            ]
        )
    )
    known = [
        {"id": f"s{number}", "run": run, "status": status, "role": "kernel"}
        for number, (run, status) in enumerate(states)
    ]
    host = {
        "node_states": known,
        "restored": str(tmp_path / "restored"),
        "rollout_saved_by": RUN,
        "undo_through": through,
        "unhang_run": "20261122T070000Z-0123456789",
        "rollout_evidence": {},
        "node_change_fencing": 7,
    }
    write_hosts(tmp_path, {"node": host})
    found = f"{plugins}:{PROJECT / 'plugins' / 'action'}"
    done = run_book(tmp_path, tmp_path / "play.yml", ANSIBLE_ACTION_PLUGINS=found)
    assert done.code == 0
    asked = tmp_path / "restored"
    assert (asked.read_text().splitlines() if asked.exists() else []) == restored


UNDONE = """return {{'changed': True, 'lines': ['on hold again: x'], 'needs_manual_action': ['{held}'], 'reboot_needed': True,
            'states': [{{'id': 's0', 'run': '{run}', 'role': 'gpu_driver', 'status': 'rolled_back', 'rolled_back_by': '{undo}'}}]}}"""
UNDO = f"{RUN}-undo"
SAVED = UNDONE.format(held="", run=RUN, undo=UNDO)


def undone(tmp_path, body):
    """(output, evidence) of the step `apply` of an undo. body: of the node's answer."""
    (tmp_path / "rollout").mkdir()
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    source = PROJECT / "playbooks" / "tasks"
    (tmp_path / "remediate_role.yml").write_text((source / "remediate_role.yml").read_text())
    (tmp_path / "rollout" / "apply.yml").write_text((source / "rollout" / "apply.yml").read_text())
    for name in ("still_free.yml", "ours.yml"):
        (tmp_path / "rollout" / name).write_text("- name: Nothing\n  ansible.builtin.meta: noop\n")
    for name in ("saved_state", "state_restore"):
        (plugins / f"{name}.py").write_text(
            PLUGIN.format(body=body if name == "state_restore" else SAVED)
        )
    kept = {
        "name": "Keep",
        "ansible.builtin.copy": {
            "content": "{{ rollout_evidence | to_json }}",
            "dest": str(tmp_path / "evidence"),
            "mode": "0600",
        },
    }
    apply = {"name": "Apply", "ansible.builtin.include_tasks": "rollout/apply.yml"}
    tasks = [{"name": "Step", "block": [apply], "always": [kept]}]
    (tmp_path / "play.yml").write_text(
        json.dumps([{"name": "Play", "hosts": "all", "gather_facts": False, "tasks": tasks}])
    )
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "remediate_roles": ["undo"],
        "undo_run": RUN,
        "unhang_run": UNDO,
    }
    host |= {
        "rollout_evidence": {"boot_id": "b"},
        "rollout_asked": {"order": {"reboots_left": 2, "boot_id": "b"}},
        "node_change_fencing": 7,
        "remediate_applies": True,
    }
    write_hosts(tmp_path, {"node": host})
    found = f"{plugins}:{PROJECT / 'plugins' / 'action'}"
    played = run_book(tmp_path, tmp_path / "play.yml", ANSIBLE_ACTION_PLUGINS=found)
    return played, json.loads((tmp_path / "evidence").read_text())


def test_an_undo_that_is_refused_before_it_touches_anything_says_so_to_the_rollout(tmp_path):
    refused = "return {'failed': True, 'msg': 'cuda-tools needs it', 'untouched': True}"
    played, found = undone(tmp_path, refused)
    assert played.code != 0
    assert "role undo: cuda-tools needs it" in played.output
    assert found["untouched"] is True


def test_what_an_undo_leaves_as_others_have_it_is_evidence_of_its_step(tmp_path):
    held = "libnvidia-ml1: found 580.1 on hold; somebody changed it since"
    played, found = undone(tmp_path, UNDONE.format(held=held, run=RUN, undo=UNDO))
    assert played.code == 0, played.output
    assert (found["look_at"], found["needs_reboot"]) == ([held], True)
    assert found["undone"] == [{"id": "s0", "role": "gpu_driver", "run": RUN, "by": UNDO}]
    reports = [
        place for text in (held, "on hold again: x") if (place := played.output.find(text)) >= 0
    ]
    assert len(reports) == 2
    assert reports == sorted(reports)  # the preview's table has only the first report
