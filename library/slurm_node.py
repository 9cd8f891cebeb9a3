#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: drains and releases a node of Slurm. Implementation:
module_utils/unhang_node/change/drain."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain a node of Slurm, wait for its jobs, and release what this run has drained
version_added: "0.1.0"
description:
  - Runs on a host with Slurm's commands, not on the node (C(delegate_to)); it uses only C(scontrol)
    and C(squeue).
  - Never touches a job, a reservation of others, or a node that somebody else took out of service.
    A drain belongs to this run if its reason begins with C(unhang RUN:), a reservation if its name
    is C(unhang-RUN-NODE).
  - At every call it waits O(scheduler_timeout_s) for a slurmctld that does not answer.
options:
  node:
    description: The node's name in Slurm; a single name.
    type: str
    required: true
  state:
    description:
      - V(drained) stops new jobs on the node. V(empty) waits until no job runs on it. V(released)
        lets it take jobs again if this run had drained it.
      - V(inspected) changes nothing and does not wait.
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
    description: Id of a run that has certainly ended, whose drain is taken over or released; V(*)
      takes over that of any run of unhang, and releases none.
    type: str
    default: ""
  reservations:
    description: Reservations in which a node may be drained, such as the maintenance window. A node
      in any other active reservation is refused.
    type: list
    elements: str
    default: []
  host:
    description:
      - Facts of the machine that is to be drained. With O(state=drained), a Slurm node with neither
        this name nor this boot time is refused, because
        O(node) then names another machine, and so is any node of another O(host.cluster).
    type: dict
    suboptions:
      name:
        description: Its host name.
        type: str
        required: true
      booted_at:
        description: Its boot time in seconds since 1970; V(0) if unknown.
        type: int
        default: 0
      cluster:
        description: ClusterName of its slurm.conf; empty if unknown.
        type: str
        default: ""
  hold_s:
    description:
      - With O(state=drained), for a node that has jobs. The node is then not drained, but reserved
        (flags C(maint,ignore_jobs)) from the end of its last job for this many seconds, after which
        it returns to Slurm by itself. Called again, the module moves the reservation, or drains a
        node without jobs and deletes it. V(0) drains at once.
      - Where Slurm allows no reservation, the node is drained.
    type: int
    default: 0
  beside_jobs:
    description: Whether O(state=empty) succeeds while jobs still run. It then waits for no job.
    type: bool
    default: false
  timeout_s:
    description: Seconds to wait for jobs, with O(state=empty). After that the module fails, and the
      node stays drained.
    type: int
    default: 3600
  scheduler_timeout_s:
    description: Seconds to wait for a slurmctld that does not answer, and with O(state=released)
      for a slurmd that does not answer slurmctld.
    type: int
    default: 600
  poll_s:
    description: Seconds between two checks.
    type: int
    default: 10
attributes:
  check_mode:
    description: Reports what would change, changes nothing and does not wait.
    support: full
  diff_mode:
    description: Shows the drain of the node before and after.
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
    - State of the node now. C(drained), it takes no new jobs; C(by) and C(reason), who drained it
      and why; C(jobs), its remaining jobs, each with C(id),
      C(user), C(state) and C(ends); C(owned), this run drained it; C(at), slurmctld's time while
      there are jobs. Also returned when the module
      fails, if the node could be read.
  returned: when the node could be read
  type: dict
  sample: {drained: true, by: root, reason: "unhang r1: driver 580.95.05", jobs: [], owned: true,
    at: ""}
note:
  description: A note for the operator, printed as by M(ansible.builtin.debug); empty if there is
    none.
  returned: success
  type: str
  sample: "gpu003 was drained by alice (bad DIMM): it is left so"
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.drain.reasons import DrainRefused, message_of
from ansible.module_utils.unhang_node.change.drain.slurm import (
    STEPS,
    SlurmAway,
    SlurmTarget,
    Waits,
    check_name,
    inspect,
)
from ansible.module_utils.unhang_node.change.drain.slurm_decisions import Asked, Host

OPTIONS = {
    "node": {"type": "str", "required": True},
    "state": {
        "type": "str",
        "choices": ["drained", "empty", "released", "inspected"],
        "default": "inspected",
    },
    "run": {"type": "str", "required": True},
    "why": {"type": "str", "default": "maintenance"},
    "takes_over": {"type": "str", "default": ""},
    "reservations": {"type": "list", "elements": "str", "default": []},
    "host": {
        "type": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "booted_at": {"type": "int", "default": 0},
            "cluster": {"type": "str", "default": ""},
        },
    },
    "hold_s": {"type": "int", "default": 0},
    "beside_jobs": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 3600},
    "scheduler_timeout_s": {"type": "int", "default": 600},
    "poll_s": {"type": "int", "default": 10},
}


def main() -> None:
    """Asks, acts unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    given = module.params
    waits = Waits(
        jobs_s=given["timeout_s"],
        scheduler_s=given["scheduler_timeout_s"],
        poll_s=max(1, given["poll_s"]),
    )
    host = Host(**given["host"]) if given["host"] else None
    asked = Asked(
        run=given["run"],
        takes_over=given["takes_over"],
        reservations=given["reservations"],
        host=host,
    )
    try:
        node, beside_jobs = check_name(given["node"]), given["beside_jobs"]
        target = SlurmTarget(
            node=node,
            asked=asked,
            why=given["why"],
            waits=waits,
            beside_jobs=beside_jobs,
            preview=module.check_mode,
            hold_s=given["hold_s"],
        )
        before = inspect(target)[0]
        answer, changed, note = STEPS[given["state"]](target)
    except DrainRefused as refused:
        module.fail_json(msg=str(refused), drain=refused.answer._asdict())
    except (SlurmAway, OSError, ValueError) as problem:
        module.fail_json(msg=message_of(problem))
    shown = [
        {"drained": row.drained, "by": row.by, "reason": row.reason} for row in (before, answer)
    ]
    module.exit_json(
        changed=changed,
        drain=answer._asdict(),
        note=note,
        diff={"before": shown[0], "after": shown[1]},
    )


if __name__ == "__main__":
    main()
