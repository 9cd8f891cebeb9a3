# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin with this name, which runs on the controller. Nothing of it
runs on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_wave
short_description: Applies the failure limit of a rollout
description:
  - Used by playbooks/remediate.yml as the first task of each batch, once for all of its hosts.
    Counts the verdicts in the journal; a node without one
    counts as failed. Returns the hosts of the batch that may begin.
options:
  rollout:
    description: The rollout, as C(rollout_begin) returned it.
    type: dict
    required: true
  hosts:
    description: The hosts of the batch, which are one wave of the plan.
    type: list
    elements: str
    required: true
  part:
    description: V(begin) applies the failure limit. V(floor) records how many nodes of the rollout
      the plan's floor lets out of service now.
      V(look_back) records what was found on the nodes that were released before. V(soak) records
      which nodes soak at the end.
      V(rebuild) records what the nodes have kept of a rollout whose journal was lost.
    type: str
    choices: [begin, floor, look_back, soak, rebuild]
    default: begin
  states:
    description: With O(part=floor) and O(part=look_back), the fact C(drain_states) of the role
      drain; empty if the scheduler cannot list its nodes.
    type: dict
  adapter:
    description: With O(part=floor), the name of the drain adapter, for the message.
    type: str
    default: none
  unlisted:
    description: With O(part=floor), why the scheduler could not be asked; nothing new is drained
      then.
    type: str
    default: ""
  max_failed:
    description: Number or share (such as V(5%)) of the nodes after the canaries that may end
      without being proved.
    type: str
    default: "0"
author: [unhang maintainers (@unhang)]
"""

EXAMPLES = r"""
- name: Count the verdicts so far
  rollout_wave:
    rollout: "{{ rollout_begun_by.rollout }}"
    hosts: "{{ ansible_play_batch }}"
  register: rollout_wave
  run_once: true
"""

RETURN = r"""
wave:
  description: Name of the wave.
  type: str
  returned: success
  sample: wave 1
begin:
  description: Hosts that may begin, or on which a step of this rollout has to be completed.
  type: list
  elements: str
  returned: success
  sample: [gpu002, gpu003]
postponed:
  description: Hosts that have to wait because too many others are out of service, with those
    others.
  type: dict
  returned: success
  sample: {}
stopped:
  description: Why no further host may begin; none if hosts may.
  type: str
  returned: success
  sample: "not proved healthy among the canaries: gpu001"
"""

if __name__ == "__main__":
    from ansible.module_utils.basic import AnsibleModule

    AnsibleModule(argument_spec={}).fail_json(
        msg=(
            "the module rollout_wave runs without its action plugin; set ANSIBLE_CONFIG to unhang's"
            " ansible.cfg"
        )
    )
