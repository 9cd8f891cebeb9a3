# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin with this name, which runs on the controller. Nothing of it
runs on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_judge
short_description: Judges nodes before and after they are changed
description:
  - Used by the playbooks that change nodes, on the run folder of their own audit
    (E(UNHANG_RUN_DIR)).
  - Fails unless the node is proved healthy. While hardware of its baseline is missing, it waits ten
    seconds instead, and returns RV(again).
options:
  part:
    description: V(begin) judges all nodes, once; V(prove) judges this one, which was just read
      again.
    type: str
    choices: [begin, prove]
    required: true
  before:
    description: With O(part=begin), run folder with the state before a rollout that is undone.
    type: str
    default: ""
  severities:
    description: Severities of findings with which a node is not healthy.
    type: list
    elements: str
  baseline:
    description: The baseline that the node has kept; without it, the copy in the folder O(beside).
    type: dict
  about:
    description: What is written beside the proof. C(roles) are those that were played,
      C(for_a_person) rules that the plan leaves to a person.
    type: dict
    default: {}
  rolled_back:
    description: Whether the node was brought back, and not to its policy.
    type: bool
    default: false
  found_by_this_run:
    description: Whether the baseline is not from before the changes that were rolled back.
    type: bool
    default: false
  beside:
    description: The folder of the plan, in which what a proof saw is kept.
    type: str
    default: ""
  pending:
    description: Why a reboot is still needed; a node that needs one is not healthy.
    type: str
    default: ""
  wait_s:
    description: Seconds for missing hardware to come up.
    type: int
    default: 0
  since:
    description: What an earlier call returned as RV(since); O(wait_s) begins then.
    type: float
author: [unhang maintainers (@unhang)]
"""

EXAMPLES = r"""
- name: Check that the node is proved healthy
  rollout_judge:
    part: prove
    severities: [critical, error]
    baseline: "{{ kept.baseline }}"
    wait_s: 300
  register: rollout_judged
"""

RETURN = r"""
nodes:
  description: For each host status, message, refusals of its policy, and the file of its baseline.
  type: dict
  returned: part is begin
  sample: {gpu001: {status: ok, message: "", refusals: [], baseline: baseline-gpu001.json}}
proof:
  description: Findings that are gone, left or for a person, and hardware that is missing.
  type: dict
  returned: part is prove
  sample: {healthy: true, reasons: [], gone: [], left: [], person: [], lost: []}
again:
  description: Whether to read the node again, because hardware may still come up.
  type: bool
  returned: part is prove
since:
  description: When the first call of this proof began, by the controller's monotonic clock.
  type: float
  returned: part is prove
"""

if __name__ == "__main__":
    from ansible.module_utils.basic import AnsibleModule

    AnsibleModule(argument_spec={}).fail_json(
        msg="the module rollout_judge runs without its action plugin; see ansible.cfg"
    )
