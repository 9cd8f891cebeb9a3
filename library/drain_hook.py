#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: calls a site's own drain hook. Implementation:
module_utils/unhang_node/change/drain/hook.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: drain_hook
short_description: Drain and release a node with the site's own program
version_added: "0.1.0"
description:
  - Calls O(argv) with four more arguments, the step (C(drain), C(wait), C(release) or C(status)),
    the node, the run and the reason.
  - The program prints one JSON object with C(drained), C(by), C(reason), C(jobs) and C(owned), and
    exits with 0 when it is done, or with 75 when it is
    not done yet and must be called again. Any other code is a failure.
options:
  argv:
    description: The program and its first arguments.
    type: list
    elements: str
    required: true
  step:
    description: The step to run.
    type: str
    choices: [drain, wait, release]
    required: true
  node:
    description: The node's name in the scheduler.
    type: str
    required: true
  run:
    description: Id of the run; with O(why) the reason that the program gets.
    type: str
    required: true
  why:
    description: Why the node is drained.
    type: str
    default: maintenance
  beside_jobs:
    description: Whether the step V(wait) succeeds while jobs still run. It then waits for no job.
    type: bool
    default: false
  timeout_s:
    description: Seconds for which the program is called again while it is not done. After that the
      module fails.
    type: int
    default: 3600
  call_timeout_s:
    description: Seconds after which one call is ended.
    type: int
    default: 60
  poll_s:
    description: Seconds between two calls.
    type: int
    default: 10
attributes:
  check_mode:
    description: Calls the program only with C(status), which must change nothing.
    support: full
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Drain the node
  drain_hook:
    argv: [/usr/local/sbin/site-drain]
    step: drain
    node: gpu001
    run: "{{ unhang_run }}"
    why: driver 580.95.05
  delegate_to: localhost
"""

RETURN = r"""
drain:
  description: The program's answer, checked. Also returned when the module fails, if there is one.
  returned: when the program gave an answer
  type: dict
  sample: {drained: true, by: site-drain, reason: "unhang r1: driver 580.95.05", jobs: [],
    owned: true}
note:
  description: A note for the operator, printed as by M(ansible.builtin.debug); empty if there is
    none.
  returned: success
  type: str
  sample: ""
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.drain.hook import HookCall, call_hook
from ansible.module_utils.unhang_node.change.drain.reasons import DrainRefused, message_of

OPTIONS = {
    "argv": {"type": "list", "elements": "str", "required": True},
    "step": {"type": "str", "choices": ["drain", "wait", "release"], "required": True},
    "node": {"type": "str", "required": True},
    "run": {"type": "str", "required": True},
    "why": {"type": "str", "default": "maintenance"},
    "beside_jobs": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 3600},
    "call_timeout_s": {"type": "int", "default": 60},
    "poll_s": {"type": "int", "default": 10},
}


def main() -> None:
    """Calls the program, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        answer, changed, note = call_hook(
            HookCall(
                **{**module.params, "poll_s": max(1, module.params["poll_s"])},
                preview=module.check_mode,
            )
        )
    except DrainRefused as refused:
        module.fail_json(msg=str(refused), drain=refused.answer._asdict())
    except (OSError, ValueError) as problem:
        module.fail_json(msg=message_of(problem))
    module.exit_json(changed=changed, drain=answer._asdict(), note=note)


if __name__ == "__main__":
    main()
