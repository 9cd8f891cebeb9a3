"""A role of a rollout that refuses before it has changed anything leaves the node untouched, and
one that may have changed something does not; on trees in place of `/`, one for each node."""

from __future__ import annotations

import json

import pytest
from fakes.role_play import PROJECT, play_tasks

STEP = """
- name: Site
  block:
    - name: Begin
      ansible.builtin.import_role: {{name: node_change, tasks_from: begin, rolespec_validate: false}}
      vars: {{node_change_role: {role}, node_change_files: [/etc/site]}}
    - name: Step
      ansible.builtin.import_role: {{name: node_change, tasks_from: step}}
      vars: {{node_change_step: '{{{{ steps_of.{role} }}}}'}}
      when: steps_of.{role} is defined
    - name: Change
      ansible.builtin.copy: {{content: new, dest: '{{{{ node_change_rootfs }}}}/etc/site', mode: '0644'}}
      when: "'{role}' in changed_by"
    - name: Refuse
      ansible.builtin.fail: {{msg: site pins other versions}}
      when: fails_in == '{role}'
  rescue:
    - name: Failed
      ansible.builtin.import_role: {{name: node_change, tasks_from: failed}}
  always:
    - name: End
      ansible.builtin.import_role: {{name: node_change, tasks_from: end}}
"""
ROLES = ("kernel", "gpu_reset", "package_hold")
NODES = {  # name -> (what its roles do, whether it is untouched)
    "refused": ({"fails_in": "kernel", "steps_of": {"kernel": "packages"}}, True),
    "exchanged": ({"fails_in": "kernel", "steps_of": {"kernel": "reload"}}, False),
    "changed-before": ({"fails_in": "gpu_reset", "changed_by": ["kernel"]}, False),
    "after-no-change": ({"fails_in": "gpu_reset"}, True),
    "after-a-reset": ({"fails_in": "package_hold"}, False),
    "services-down": ({"fails_in": "kernel", "gpu_driver_not_started": ["x.service"]}, False),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """{node: what the rollout's evidence says}."""
    work = tmp_path_factory.mktemp("refused")
    for role in ROLES:
        (work / "roles" / role / "tasks").mkdir(parents=True)
        (work / "roles" / role / "tasks" / "main.yml").write_text(STEP.format(role=role))
    include = {"ansible.builtin.include_tasks": f"{PROJECT}/playbooks/tasks/remediate_role.yml"}
    one = {
        **include,
        "name": "Role",
        "loop": list(ROLES),
        "loop_control": {"loop_var": "remediate_role"},
    }
    lock = {"ansible.builtin.include_role": {"name": "node_change", "tasks_from": "lock"}}
    keep = {
        "ansible.builtin.copy": {
            "content": "{{ rollout_evidence | to_json }}",
            "dest": f"{work}/{{{{ inventory_hostname }}}}.json",
            "mode": "0644",
        }
    }
    tasks = [{**lock, "name": "Lock"}, {"name": "Roles", "block": [one], "rescue": [keep]}]
    hosts = {}
    for name, (asked, _untouched) in NODES.items():
        (work / "root" / name / "etc").mkdir(parents=True)
        (work / "root" / name / "etc" / "site").write_text("old")
        hosts[name] = {
            "node_change_rootfs": str(work / "root" / name),
            "remediate_applies": True,
            "remediate_roles": list(ROLES),
            "rollout_evidence": {"free": True},
            "steps_of": {},
            "changed_by": [],
            **asked,
        }
    play_tasks(work, hosts, *tasks, ANSIBLE_ROLES_PATH=f"{work}/roles:{PROJECT}/roles")
    return {name: json.loads((work / f"{name}.json").read_text()) for name in NODES}


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_untouched_where_nothing_was_changed_before_the_refusal(found, name):
    more = {"untouched": True} if NODES[name][1] else {}
    assert found[name] == {"free": True, **more}
