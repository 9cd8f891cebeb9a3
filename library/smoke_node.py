# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of this name; nothing of it runs on a node as a module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: smoke_node
short_description: One step of the smoke test on one node
description:
  - Used by the role smoke_test. Asks a node for addresses, routes and GPUs; starts the payload apart from the connection; waits for its end,
    through losses of the connection, and brings back what it told.
  - A node with which something goes wrong does not fail the task. Why is written to the folder of the test and in RV(problem), and the result
    of the test names it.
options:
  state:
    description:
      - V(surveyed) writes surveys/HOST.json.
      - V(started) starts what rounds/ROUND/plans/HOST.json asks for, with the task's C(async) as the limit of all; nothing without that file.
      - V(ended) waits, writes rounds/ROUND/events/HOST.jsonl, and removes the payload from the node.
    type: str
    required: true
    choices: [surveyed, started, ended]
  folder:
    description: Folder of the test on the controller.
    type: path
    required: true
  round:
    description: Which round.
    type: int
    default: 0
  started:
    description: What V(started) returned.
    type: dict
  reconnect_s:
    description: Seconds for which a connection that was lost is tried again.
    type: int
    default: 60
author: [unhang maintainers (@unhang)]
"""

EXAMPLES = r"""
- name: Read addresses, routes and GPUs
  smoke_node:
    state: surveyed
    folder: /srv/smoke/20260101T000000
"""

RETURN = r"""
problem:
  description: Why this node gave no answer, in one line; null when it did.
  type: str
  returned: always
place:
  description: Folder of the payload on the node.
  type: str
  returned: after started
"""

if __name__ == "__main__":
    from ansible.module_utils.basic import AnsibleModule

    AnsibleModule(argument_spec={}).fail_json(msg="expected the action plugin smoke_node, found the module alone; set ANSIBLE_CONFIG to unhang's ansible.cfg")
