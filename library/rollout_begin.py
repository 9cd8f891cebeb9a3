# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin with this name, which runs on the controller. Nothing of it
runs on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_begin
short_description: Opens a plan for a rollout
description:
  - Used by playbooks/remediate.yml, once for all hosts. Reads the plan, refuses an edited plan or
    one with hosts that no longer exist, and makes this
    ansible-playbook the only controller that may write the journal beside the plan.
  - Refuses while another controller may still run the same rollout.
options:
  plan:
    description: The file plan.json, or its run folder.
    type: path
    required: true
  hosts:
    description: The hosts of the play.
    type: list
    elements: str
    required: true
  by:
    description: Who runs it, shown to a run that is refused.
    type: str
    required: true
  controller:
    description: The process of the run, from the filter P(unhang_run_controller#filter).
    type: dict
    required: true
  takes_over:
    description: Id of the plan's run, to declare an earlier controller dead and take over its
      locks.
    type: str
    default: ""
  ending:
    description: Why the rollout is ended, empty if it goes on.
    type: str
    default: ""
  soak:
    description: How long released nodes soak before the next wave, such as V(5m); empty for no
      soak.
    type: str
    default: ""
  command:
    description: The command of C(unhang) that a person has typed, for messages; empty for a
      playbook that was started by itself.
    type: str
    default: ""
author: [unhang maintainers (@unhang)]
"""

EXAMPLES = r"""
- name: Become the controller of the rollout
  rollout_begin:
    plan: runs/latest/plan.json
    hosts: "{{ ansible_play_hosts_all }}"
    by: "{{ '' | unhang_run_by }}"
    controller: "{{ '' | unhang_run_controller }}"
  register: rollout_begun_by
  run_once: true
"""

RETURN = r"""
rollout:
  description: The rollout, for C(rollout_wave) and C(rollout_step).
  type: dict
  returned: success
  sample: {folder: /srv/runs/20261120T070000Z-0123456789, run: 20261120T070000Z-0123456789,
    epoch: 1, read: /srv/runs/20261120T080000Z-0123456789}
"""

if __name__ == "__main__":
    from ansible.module_utils.basic import AnsibleModule

    AnsibleModule(argument_spec={}).fail_json(
        msg="the module rollout_begin runs without its action plugin; see ansible.cfg"
    )
