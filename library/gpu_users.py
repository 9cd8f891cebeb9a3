#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: lists who uses a node's GPUs. Implementation:
module_utils/unhang_node/change/gpu/users.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_users
short_description: List the processes, services and kernel modules that use a node's GPUs
version_added: "0.1.0"
description:
  - Lists every process that has a V(/dev/nvidia*) open, also those that NVML does not list, the
    known services (exporters, DCGM, MPS, a display server,
    persistenced, IMEX, fabric manager), and kernel modules that need the driver.
  - Also lists the jobs of Slurm that run on the node, and which scheduler's daemon the node has.
  - Changes nothing. M(gpu_services) stops and starts the services.
options:
  wait_s:
    description:
      - Seconds to wait until only known services use the GPUs and no job of Slurm runs. Those that
        remain after that are no failure without O(refusal). Check mode does not wait.
    type: int
    default: 0
  poll_s:
    description: Seconds between two checks.
    type: int
    default: 10
  refusal:
    description: If a job remains after O(wait_s), the module fails with this message, in which
      V({jobs}) stands for their ids, users and states. Not in check mode.
    type: str
    default: ""
  slurm_alone:
    description: Count only the jobs of Slurm as jobs; the processes on the GPUs are not read.
    type: bool
    default: false
extends_documentation_fragment: [unhang.reads]
"""

EXAMPLES = r"""
- name: List who uses the GPUs
  gpu_users:
  register: users
"""

RETURN = r"""
users:
  description: Who uses the GPUs. With O(slurm_alone) only C(processes), which is empty.
  returned: success
  type: dict
  contains:
    processes:
      description: Processes with a device open; service is the known unit of the process, unit any
        of the system's, or none. What computes does more than to monitor.
      type: list
      elements: dict
    services:
      description: Known services that are installed.
      type: list
      elements: dict
    modules_held:
      description: Modules of the driver that something else than other modules holds.
      type: list
      elements: dict
    foreign_modules:
      description: Modules that need the driver and that unhang does not know how to load again.
      type: list
      elements: str
    unload:
      description: Modules in the order in which they would be unloaded.
      type: list
      elements: str
  sample: {processes: [{pid: 4711, user: alice, command: python3, devices: [/dev/nvidia0],
    service: null, unit: null, computes: true}], services: [], modules_held: [], unload:
    [nvidia]}
stopped_units:
  description: Units that an earlier run stopped and that nobody has started since.
  returned: success
  type: list
  elements: str
  sample: []
drain:
  description: State of a node without a scheduler, in the form of M(slurm_node). It is drained when
    C(jobs) (processes on the GPUs that belong
    to no known service, and jobs of Slurm) is empty.
  returned: when the node could be read
  type: dict
  sample: {drained: true, by: "", reason: "", jobs: [], owned: false}
scheduler:
  description: V(slurm) or V(kubernetes), whose daemon the node has; V(none) without either; empty
    with both.
  returned: success
  type: str
  sample: slurm
host:
  description: Name, boot and cluster (of its slurm.conf) of the machine, by which M(slurm_node)
    knows that its node is this machine. C(booted_at), seconds since 1970; empty and 0 if they
    cannot be read.
  returned: success
  type: dict
  sample: {name: gpu001, boot_id: 5f3d6b0a-1c8e-4f0e-9a55-0b7f2d1a9c11, booted_at: 1795146451,
    cluster: east}
previews:
  description: True in check mode, for whatever reason.
  returned: success
  type: bool
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.drain.gpus import wait_for_jobs
from ansible.module_utils.unhang_node.change.drain.reasons import message_of
from ansible.module_utils.unhang_node.change.gpu.users import (
    read_host,
    read_scheduler,
    read_stopped,
)

OPTIONS = {
    "poll_s": {"type": "int", "default": 10},
    "refusal": {"type": "str", "default": ""},
    "slurm_alone": {"type": "bool", "default": False},
    "wait_s": {"type": "int", "default": 0},
}


def main() -> None:
    """Reads, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        stopped, scheduler = read_stopped(), read_scheduler()
        wait_s, poll_s = (
            0 if module.check_mode else module.params["wait_s"],
            max(1, module.params["poll_s"]),
        )
        users, drain = wait_for_jobs(wait_s, poll_s, slurm_alone=module.params["slurm_alone"])
    except (OSError, ValueError) as problem:
        module.fail_json(msg=message_of(problem))
    if drain.jobs and module.params["refusal"] and not module.check_mode:
        words = ((row.get(key) for key in ("id", "user", "state")) for row in drain.jobs)
        jobs = ", ".join(" ".join(str(one) for one in row if one) for row in words)
        module.fail_json(
            msg=module.params["refusal"].replace("{jobs}", jobs), drain=drain._asdict()
        )
    module.exit_json(
        changed=False,
        host=read_host(),
        users=users,
        stopped_units=stopped,
        drain=drain._asdict(),
        scheduler=scheduler,
        previews=module.check_mode,
    )


if __name__ == "__main__":
    main()
