#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: lists which nodes of a scheduler take jobs. Implementation:
module_utils/unhang_node/change/drain."""

from __future__ import annotations

DOCUMENTATION = r"""
module: drain_states
short_description: List which nodes of a scheduler take jobs, and who took the others out of service
version_added: "0.1.0"
description:
  - Runs on a host with Slurm's commands, or with the site's hook, not on a node (C(delegate_to)).
    One call for all nodes. It changes nothing.
options:
  adapter:
    description: The scheduler. V(slurm) asks C(scontrol show nodes), V(command) calls O(argv).
    type: str
    choices: [slurm, command]
    required: true
  argv:
    description:
      - The hook and its first arguments, with O(adapter=command). It is called with C(states),
        C(all), the run and the reason, prints one JSON object with
        C(in_service) and C(out), and exits with 0.
    type: list
    elements: str
    default: []
  run:
    description: Id of the run, for the hook.
    type: str
    required: true
  call_timeout_s:
    description: Seconds after which the hook is ended.
    type: int
    default: 60
  scheduler_timeout_s:
    description: Seconds to wait for a slurmctld that does not answer.
    type: int
    default: 600
  poll_s:
    description: Seconds between two queries.
    type: int
    default: 10
  with_jobs:
    description: Also list the jobs on each node, with one call of C(squeue); only with
      O(adapter=slurm).
    type: bool
    default: false
extends_documentation_fragment: [unhang.reads]
"""

EXAMPLES = r"""
- name: List the nodes that take jobs
  drain_states:
    adapter: slurm
    run: "{{ unhang_run }}"
  delegate_to: slurmctl1
  register: listed
"""

RETURN = r"""
states:
  description: C(in_service), the names of the nodes that take jobs; C(out), the others, with who
    took each out of service and why; with O(adapter=slurm) also C(unknown), those of C(out) that
    slurmctld calls UNKNOWN after O(scheduler_timeout_s); with O(with_jobs) also C(jobs), those of
    each node that has one.
  returned: success
  type: dict
  sample: {in_service: [gpu001, gpu002], out: {gpu003: "alice (bad DIMM)"}, unknown: []}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.drain.hook import call_states
from ansible.module_utils.unhang_node.change.drain.reasons import message_of
from ansible.module_utils.unhang_node.change.drain.slurm import SlurmAway, Waits, list_states

OPTIONS = {
    "adapter": {"type": "str", "choices": ["slurm", "command"], "required": True},
    "argv": {"type": "list", "elements": "str", "default": []},
    "run": {"type": "str", "required": True},
    "call_timeout_s": {"type": "int", "default": 60},
    "scheduler_timeout_s": {"type": "int", "default": 600},
    "poll_s": {"type": "int", "default": 10},
    "with_jobs": {"type": "bool", "default": False},
}


def main() -> None:
    """Asks the scheduler, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    given = module.params
    try:
        if given["adapter"] == "slurm":
            states = list_states(
                Waits(
                    jobs_s=0,
                    scheduler_s=given["scheduler_timeout_s"],
                    poll_s=max(1, given["poll_s"]),
                ),
                run=given["run"],
                with_jobs=given["with_jobs"],
            )
        else:
            states = call_states(given["argv"], given["run"], given["call_timeout_s"])
    except (SlurmAway, OSError, ValueError) as problem:
        module.fail_json(msg=message_of(problem))
    module.exit_json(changed=False, states=states)


if __name__ == "__main__":
    main()
