#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module that drains a node of Slurm and gives it back; how lies in module_utils/unhang_node/change/drain."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain a node of Slurm, wait for its jobs, and release what this run has drained
version_added: "0.1.0"
description:
  - Runs where Slurm's commands are, not on the node (C(delegate_to)); C(scontrol) and C(squeue) are all that it uses.
  - Never touches a job, a reservation, or a node that somebody else took out of service. A drain is this run's when its reason begins with
    C(unhang RUN:).
  - A slurmctld that gives no answer is waited for O(scheduler_timeout_s), at every question.
options:
  node:
    description: The node's name in Slurm. One name, no list.
    type: str
    required: true
  state:
    description:
      - With V(drained), the node takes no new jobs. With V(empty), no job is on it any more. With V(released), it takes jobs again if this run had drained it.
      - V(inspected) changes nothing and waits for no job.
    type: str
    choices: [drained, empty, released, inspected]
    default: inspected
  run:
    description: Id of the run; with O(why) the reason that Slurm shows.
    type: str
    required: true
  why:
    description: Why the node is drained.
    type: str
    default: maintenance
  takes_over:
    description: Id of a run that is over for sure, whose drain is taken over or released.
    type: str
    default: ""
  reservations:
    description: Reservations in which a node may be drained, such as the maintenance window. A node in any other that is active is refused.
    type: list
    elements: str
    default: []
  host:
    description:
      - What the machine that is to be drained says of itself. With O(state=drained), a node of Slurm that has neither this name nor this boot is refused, for
        then O(node) names another machine.
    type: dict
    suboptions:
      name:
        description: Its host name.
        type: str
        required: true
      booted_at:
        description: When it booted, in seconds since 1970; V(0) where that is not known.
        type: int
        default: 0
  beside_jobs:
    description: Whether jobs that are left are no failure of O(state=empty). It then waits for none.
    type: bool
    default: false
  timeout_s:
    description: Seconds to wait for jobs, with O(state=empty). When they are over the module fails, and the drain stays.
    type: int
    default: 3600
  scheduler_timeout_s:
    description: Seconds to wait for a slurmctld that gives no answer, and with O(state=released) for a slurmd that does not answer slurmctld.
    type: int
    default: 600
  poll_s:
    description: Seconds between two looks.
    type: int
    default: 10
attributes:
  check_mode:
    description: Says what would change, changes nothing and waits for no job.
    support: full
  diff_mode:
    description: Shows who has the node, before and after.
    support: full
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Drain the node
  slurm_node:
    node: gpu001
    state: drained
    run: "{{ unhang_run }}"
    why: driver 580.95.05
  delegate_to: slurmctl1
"""

RETURN = r"""
drain:
  description:
    - How the node stands now. C(drained), it takes no new jobs; C(by) and C(reason), who saw to that and why; C(jobs), what is still there, each with C(id),
      C(user), C(state) and C(ends); C(owned), the reason is this run's. Returned when the module fails too, where the node could be read.
  returned: when the node could be read
  type: dict
  sample: {drained: true, by: root, reason: "unhang r1: driver 580.95.05", jobs: [], owned: true}
note:
  description: What an operator should know; empty for nothing.
  returned: success
  type: str
  sample: "gpu003 was drained by alice (bad DIMM): it is left so"
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.drain.reasons import DrainRefused, message_of
from ansible.module_utils.unhang_node.change.drain.slurm import STEPS, SlurmAway, SlurmTarget, Waits, check_name, inspect
from ansible.module_utils.unhang_node.change.drain.slurm_decisions import Asked, Host

OPTIONS = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["drained", "empty", "released", "inspected"], "default": "inspected"},
    "run": {"type": "str", "required": True},
    "why": {"type": "str", "default": "maintenance"},
    "takes_over": {"type": "str", "default": ""},
    "reservations": {"type": "list", "elements": "str", "default": []},
    "host": {"type": "dict", "options": {"name": {"type": "str", "required": True}, "booted_at": {"type": "int", "default": 0}}},
    "beside_jobs": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 3600},
    "scheduler_timeout_s": {"type": "int", "default": 600},
    "poll_s": {"type": "int", "default": 10},
}


def main() -> None:
    """Asks, acts unless in check mode, answers."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    given = module.params
    waits = Waits(given["timeout_s"], given["scheduler_timeout_s"], max(1, given["poll_s"]))
    host = Host(**given["host"]) if given["host"] else None
    asked = Asked(given["run"], given["takes_over"], given["reservations"], host=host)
    try:
        target = SlurmTarget(check_name(given["node"]), asked, given["why"], waits, given["beside_jobs"], module.check_mode)
        before = inspect(target)[0]
        answer, changed, note = STEPS[given["state"]](target)
    except DrainRefused as refused:
        module.fail_json(msg=str(refused), drain=refused.answer._asdict())
    except (SlurmAway, OSError, ValueError) as problem:
        module.fail_json(msg=message_of(problem))
    shown = [{"drained": row.drained, "by": row.by, "reason": row.reason} for row in (before, answer)]
    module.exit_json(changed=changed, drain=answer._asdict(), note=note, diff={"before": shown[0], "after": shown[1]})


if __name__ == "__main__":
    main()
