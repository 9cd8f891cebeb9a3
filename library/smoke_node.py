# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of this name; nothing of it runs on a node as a module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: smoke_node
short_description: One step of the smoke test on one node
description:
  - Used by the role smoke_test. Reads addresses, routes and GPUs of a node; starts the payload
    independently of the connection; waits for its end, even
    if the connection is lost, and fetches its result.
  - A problem with a node does not fail the task. The reason is in the folder of the test, in
    RV(problem) and in the result of the test.
options:
  state:
    description:
      - V(able) looks for torch in O(python), and imports nothing; with O(runtime), for that program
        alone.
      - V(surveyed) writes surveys/HOST.json.
      - V(started) starts the test of rounds/ROUND/plans/HOST.json, with the task's C(async) as its
        time limit; without that file it starts nothing.
      - V(ended) waits, writes rounds/ROUND/events/HOST.jsonl, and removes the payload from the
        node.
    type: str
    required: true
    choices: [able, surveyed, started, ended]
  folder:
    description: Folder of the test on the controller; not for V(able).
    type: path
    default: ""
  python:
    description: The Python of V(able); else the one that runs Ansible's modules there.
    type: str
    default: ""
  runtime:
    description: The runtime of containers, where the test runs in an image; for V(able).
    type: str
    default: ""
  round:
    description: Number of the round.
    type: int
    default: 0
  started:
    description: What V(started) returned.
    type: dict
  reconnect_s:
    description: Seconds for which a lost connection is tried again.
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
  description: Why this node did not answer, in one line; null if it did.
  type: str
  returned: always
place:
  description: Folder of the payload on the node.
  type: str
  returned: after started
"""

if __name__ == "__main__":
    from ansible.module_utils.basic import AnsibleModule

    AnsibleModule(argument_spec={}).fail_json(
        msg=(
            "the module smoke_node runs without its action plugin; set ANSIBLE_CONFIG to unhang's"
            " ansible.cfg"
        )
    )
