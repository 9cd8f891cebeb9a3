#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: sets a kernel parameter, a kernel module, /dev/shm or a limit, now and at every
boot. Implementation: module_utils/unhang_node/change/host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_setting
short_description: Set a kernel parameter, a kernel module, /dev/shm or a limit, now and at every
  boot
version_added: "0.2.0"
description:
  - Writes files of unhang's own and sets the running system. It restarts nothing, unloads no kernel
    module, and runs no daemon-reload, which makes running containers lose their GPUs.
  - Contradicting lines of others are turned into comments. They and the running value are saved
    under V(/var/lib/unhang) first, and O(state=absent) restores them.
  - If the value cannot be set, as in most containers, it changes nothing and reports that in
    RV(needs_manual_action).
options:
  setting:
    description:
      - What is set.
      - V(kernel_parameter) is O(name) of V(/proc/sys), by V(/etc/sysctl.d/zz-unhang-NAME.conf).
      - V(kernel_module) is O(name), with O(parameters) by V(/etc/modprobe.d/zz-unhang-NAME.conf)
        under each name of the module on this node, which take effect when it is loaded next; with
        O(at_boot) also V(/etc/modules-load.d/unhang-NAME.conf).
      - V(shm_size) is the least size of V(/dev/shm) in bytes, which is never made smaller.
      - V(memlock) and V(nofile) are the least limit of jobs, and higher ones are kept. V(stack) is
        the soft limit, and the maximum. They are written to V(/etc/security/limits.d), and to a
        drop-in for each systemd unit that starts jobs (sshd, slurmd, containerd, docker, crio,
        kubelet and O(units)) whose limit from other files is too low. Running services are raised
        with C(prlimit); processes that they have started keep theirs.
    type: str
    choices: [kernel_parameter, kernel_module, shm_size, memlock, nofile, stack]
    required: true
  name:
    description: Name of the kernel parameter, with dots, or of the kernel module.
    type: str
  value:
    description: The value, in bytes or as a number of files for a size or limit; -1 is unlimited.
      Needed with O(state=present), except for a kernel module.
    type: str
  parameters:
    description: Parameters of the kernel module, such as V(NVreg_EnableGpuFirmware=0).
    type: dict
    default: {}
  at_boot:
    description: Whether to load the kernel module now and at every boot.
    type: bool
    default: false
  units:
    description: More units that start jobs.
    type: list
    elements: str
    default: []
  state:
    description: Whether to set it, or to undo what this module did.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Switch automatic NUMA balancing off
  host_setting:
    setting: kernel_parameter
    name: kernel.numa_balancing
    value: "0"

- name: Load the module that gives RDMA direct access to GPU memory
  host_setting:
    setting: kernel_module
    name: nvidia-peermem
    at_boot: true

- name: Make room for the segments of NCCL and data loaders
  host_setting:
    setting: shm_size
    value: 68719476736

- name: Let RDMA lock any amount of memory
  host_setting:
    setting: memlock
    value: -1
    units: [ray.service]
"""

RETURN = r"""
before:
  description: Values of the running system that change, limits as soft:hard.
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
pending_load:
  description: Parameters in which the loaded kernel module differs, until it is loaded again or the
    node boots.
  returned: success
  type: list
  elements: str
  sample: [NVreg_EnableGpuFirmware]
"""

import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.host.apply_limit import plan_limit
from ansible.module_utils.unhang_node.change.host.kernel_module import not_running_with, plan_module
from ansible.module_utils.unhang_node.change.host.kernel_parameter import plan_parameter
from ansible.module_utils.unhang_node.change.host.setting import Setting, apply_setting, result_of
from ansible.module_utils.unhang_node.change.host.shm_size import plan_size
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, act

SETTINGS = ["kernel_parameter", "kernel_module", "shm_size", "memlock", "nofile", "stack"]
OPTIONS = {
    "setting": {"type": "str", "choices": SETTINGS, "required": True},
    "name": {"type": "str"},
    "value": {"type": "str"},
    "parameters": {"type": "dict", "default": {}},
    "at_boot": {"type": "bool", "default": False},
    "units": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **ON_ROOTFS,
}


def plan(given: dict[str, Any], parameters: dict[str, str]) -> Setting:
    """What these options change. Raises OSError, ValueError."""
    setting, rootfs, name = given["setting"], given["rootfs"], given["name"]
    present, value = given["state"] == "present", given["value"]
    if setting == "kernel_module":
        return plan_module(rootfs, name, parameters if present else None, given["at_boot"])
    if present and value is None:
        raise ValueError(f"value is missing: {setting} needs one")
    if setting == "kernel_parameter":
        return plan_parameter(rootfs, name, value if present else None)
    if present and not re.fullmatch("-?[0-9]+", value):
        raise ValueError(f"value must be a number for {setting}, and is {value!r}")
    number = int(value) if present else None
    if setting == "shm_size":
        return plan_size(rootfs, number)
    return plan_limit(rootfs, setting, number, given["units"])


def apply(module: AnsibleModule) -> dict[str, Any]:
    """Makes the changes unless in check mode, and returns the result. Raises OSError,
    ValueError."""
    given = module.params
    rootfs, absent = given["rootfs"], given["state"] == "absent"
    parameters = {} if absent else {key: str(value) for key, value in given["parameters"].items()}
    setting = plan(given, parameters)
    if not module.check_mode:
        setting = apply_setting(rootfs, given["state_id"], setting, absent)
    pending = not_running_with(given["name"], parameters) if rootfs == "/" else []
    return dict(result_of(setting), pending_load=pending)


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        required_if=[
            ("setting", "kernel_parameter", ["name"]),
            ("setting", "kernel_module", ["name"]),
        ],
    )
    act(module, apply)


if __name__ == "__main__":
    main()
