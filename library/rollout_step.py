# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin with this name, which runs on the controller. Nothing of it
runs on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_step
short_description: One step of a rollout on one node
description:
  - Used by playbooks/remediate.yml. Asks the state machine whether the node needs a step now, and
    reports the step's result to it. Both are in the
    journal on the disk before anything else happens.
  - The result of a step is judged by its evidence; V(ok) without evidence has failed.
options:
  rollout:
    description: The rollout, as C(rollout_begin) returned it.
    type: dict
    required: true
  part:
    description: V(ask) whether the step is to be done, V(answer) what came of it, or V(end), which
      fails for a node that is not proved.
    type: str
    choices: [ask, answer, end]
    required: true
  step:
    description: Name of the step, with O(part=ask).
    type: str
  order:
    description: What V(ask) returned, with O(part=answer).
    type: dict
  status:
    description: V(ok), V(failed), V(silent), or V(fenced) where another run has taken the node.
    type: str
    default: ok
  evidence:
    description: Evidence of the step, with O(part=answer).
    type: dict
  max_failed:
    description: As for C(rollout_wave).
    type: str
    default: "0"
author: [unhang maintainers (@unhang)]
"""

EXAMPLES = r"""
- name: Ask whether the node needs the step now
  rollout_step:
    rollout: "{{ rollout_begun_by.rollout }}"
    part: ask
    step: drain
  register: rollout_asked
"""

RETURN = r"""
go:
  description: Whether to run the step.
  type: bool
  returned: part is ask
order:
  description: The order; empty if there is none.
  type: dict
  returned: part is ask
  sample: {host: gpu001, step: reboot, token: 7, boot_id: 0bbd171a-76df-4cbc-851a-df4c3d61570a,
    reboots_left: 1, why: ""}
as_before:
  description: Whether the node was audited after its rollback, by this controller or an earlier
    one, and is what it was before it was changed.
  type: bool
  returned: part is ask
status:
  description: Result of the step in the journal.
  type: str
  returned: part is answer
  sample: done
msg:
  description: One line.
  type: str
  returned: part is answer or end
"""

if __name__ == "__main__":
    from ansible.module_utils.basic import AnsibleModule

    AnsibleModule(argument_spec={}).fail_json(
        msg=(
            "the module rollout_step runs without its action plugin; set ANSIBLE_CONFIG to unhang's"
            " ansible.cfg"
        )
    )
