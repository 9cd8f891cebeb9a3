#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: raises memlock, nofile or stack to what jobs need. Implementation:
module_utils/unhang_node/change/host/apply_limit.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_limit
short_description: Give jobs the locked memory, open files or stack that they need
version_added: "0.1.0"
description:
  - Writes V(/etc/security/limits.d/00-unhang-LIMIT.conf), and a drop-in for each systemd unit of
    the node that starts jobs (sshd, slurmd, containerd,
    docker, crio, kubelet and those of O(units)) whose limit from other files is too low.
  - Contradicting lines of others in V(/etc/security) are turned into comments. They are saved under
    V(/var/lib/unhang) first, and O(state=absent)
    restores them.
  - Raises the limit of running services with C(prlimit). It restarts nothing and runs no
    daemon-reload, which makes running containers lose their GPUs;
    new processes of a service have the new limit, running ones keep theirs.
  - If so high a limit cannot be set, as in a container without CAP_SYS_RESOURCE, or above
    fs.nr_open, it changes nothing and RV(needs_manual_action)
    reports that.
  - For memlock and nofile O(value) is the minimum, and higher limits are kept. For the stack it is
    the soft limit, and the maximum.
options:
  limit:
    description: The limit to set.
    type: str
    choices: [memlock, nofile, stack]
    required: true
  value:
    description: Bytes, or a number of files; -1 is unlimited. Needed with O(state=present).
    type: int
  units:
    description: More units that start jobs.
    type: list
    elements: str
    default: []
  state:
    description: Whether the limit is set, or everything that this module wrote is removed.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Let RDMA lock any amount of memory
  host_limit:
    limit: memlock
    value: -1
    units: [ray.service]
"""

RETURN = r"""
before:
  description: Limits of running services that are too low, as soft:hard.
  returned: success
  type: dict
  sample: {memlock of slurmd.service: "8388608"}
after:
  description: The values after the change, or as they would be.
  returned: success
  type: dict
  sample: {memlock of slurmd.service: infinity}
files:
  description: Files that were changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/security/limits.d/00-unhang-memlock.conf]
lines:
  description: Lines of others that were turned into comments.
  returned: success
  type: list
  elements: dict
  sample: [{file: /etc/security/limits.conf, line: 50, text: "* hard memlock 64"}]
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.config.own_files import (
    FilePlan,
    module_result,
    write_plan,
)
from ansible.module_utils.unhang_node.change.host import apply_limit as run
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, act
from ansible.module_utils.unhang_node.change.journal.running_values import (
    Change,
    forget_running,
    keep_running,
)

OPTIONS = {
    "limit": {"type": "str", "choices": ["memlock", "nofile", "stack"], "required": True},
    "value": {"type": "int"},
    "units": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **ON_ROOTFS,
}


def apply(module: AnsibleModule) -> dict[str, Any]:
    """Makes the changes unless in check mode, and returns the result. Raises OSError,
    ValueError."""
    rootfs, limit, wanted = module.params["rootfs"], module.params["limit"], module.params["value"]
    absent, state_id = module.params["state"] == "absent", module.params["state_id"]
    if wanted is not None and wanted < -1:
        raise ValueError(f"value: expected -1 for unlimited, or a number from 0 on; found {wanted}")
    if absent:
        plan, rows = run.plan_without(rootfs, limit), []
    else:
        most = run.most_possible(limit) if rootfs == "/" else None
        why = run.why_not(limit, wanted, most)
        if why:
            return module_result(FilePlan(manual=[why]))
        plan, units = run.plan_limit(rootfs, limit, wanted, module.params["units"], most)
        rows = run.plan_running(limit, wanted, units)
    manual = []
    if not module.check_mode:
        write_plan(rootfs, run.owner_of(limit), plan, absent, state_id)
        changes = [Change("limit", *row) for row in run.changes_of(limit, rows)]
        keep_running(rootfs, state_id, changes)
        rows, manual = run.set_running(limit, rows)
        done = {name for name, _now, _goal in run.changes_of(limit, rows)}
        forget_running(rootfs, state_id, [change for change in changes if change.name not in done])
    return module_result(plan._replace(manual=[*plan.manual, *manual]), run.effects_of(limit, rows))


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        required_if=[("state", "present", ["value"])],
    )
    act(module, apply)


if __name__ == "__main__":
    main()
