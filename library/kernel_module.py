#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: sets a kernel module's parameters and loads it at boot. Implementation:
module_utils/unhang_node/change/host/kernel_module.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_module
short_description: Give a kernel module its parameters, and load it at boot
version_added: "0.1.0"
description:
  - Writes O(parameters) to V(/etc/modprobe.d/zz-unhang-NAME.conf), under each name of the module on
    this node. They take effect when it is loaded next;
    this module never unloads it, and RV(pending_load) has the parameters that differ until then.
  - With O(at_boot) writes V(/etc/modules-load.d/unhang-NAME.conf) and loads the module now. If
    modules cannot be loaded, as in most containers, it
    changes nothing and reports that in RV(needs_manual_action).
  - Contradicting lines of others are turned into comments. They are saved under V(/var/lib/unhang)
    first, and O(state=absent) restores them.
options:
  name:
    description: Name of the module, such as V(nvidia) or V(nvidia-peermem).
    type: str
    required: true
  parameters:
    description: Parameters with values, such as V(NVreg_EnableGpuFirmware=0).
    type: dict
    default: {}
  at_boot:
    description: Whether to load the module now and at every boot.
    type: bool
    default: false
  state:
    description: Whether to apply this, or to remove what this module wrote.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Load the module that gives RDMA direct access to GPU memory
  kernel_module:
    name: nvidia-peermem
    at_boot: true
"""

RETURN = r"""
before:
  description: Whether the module was loaded, when that changes.
  returned: success
  type: dict
  sample: {nvidia-peermem: not loaded}
after:
  description: The values after the change.
  returned: success
  type: dict
  sample: {nvidia-peermem: loaded}
files:
  description: Files that were changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/modules-load.d/unhang-nvidia-peermem.conf]
lines:
  description: Lines of others that were turned into comments.
  returned: success
  type: list
  elements: dict
  sample: [{file: /etc/modprobe.d/site.conf, line: 1, text: blacklist nvidia-peermem}]
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: dict
  sample: []
pending_load:
  description: Parameters in which the loaded module differs, until it is loaded again or the node
    boots.
  returned: success
  type: list
  elements: str
  sample: [NVreg_EnableGpuFirmware]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.config.own_files import (
    FilePlan,
    module_result,
    write_plan,
)
from ansible.module_utils.unhang_node.change.host import kernel_module as run
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, enter
from ansible.module_utils.unhang_node.change.journal.running_values import Change, keep_running

OPTIONS = {
    "name": {"type": "str", "required": True},
    "parameters": {"type": "dict", "default": {}},
    "at_boot": {"type": "bool", "default": False},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **ON_ROOTFS,
}


def apply(module: AnsibleModule, parameters: dict[str, str]) -> dict[str, Any]:
    """Makes the changes unless in check mode, and returns the result. Raises OSError,
    ValueError."""
    rootfs, name, at_boot = module.params["rootfs"], module.params["name"], module.params["at_boot"]
    absent = module.params["state"] == "absent"
    to_load = at_boot and not absent and rootfs == "/" and not run.is_loaded(name)
    why = run.why_not_load() if to_load else None
    if why:
        return module_result(FilePlan(manual=[why]))
    plan = (
        run.plan_without(rootfs, name)
        if absent
        else run.plan_module(rootfs, name, parameters, at_boot)
    )
    if not module.check_mode:
        write_plan(rootfs, run.owner_of(name), plan, absent, module.params["state_id"])
    if to_load and not module.check_mode:
        keep_running(
            rootfs,
            module.params["state_id"],
            [Change(kind="kernel_module", name=name, value="not loaded", wanted="loaded")],
        )
        try:
            run.load(name)  # the module's parameters are written by now
        except (OSError, ValueError):  # a module that cannot be loaded now would fail at every boot
            write_plan(
                rootfs,
                run.owner_of(name),
                run.plan_without(rootfs, name),
                True,
                module.params["state_id"],
            )
            raise
    return module_result(plan, [(name, "not loaded", "loaded")] if to_load else [])


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    parameters = (
        {name: str(value) for name, value in module.params["parameters"].items()}
        if module.params["state"] == "present"
        else {}
    )
    try:
        run.check(module.params["name"], parameters)
        answer = apply(module, parameters)
        pending = (
            run.not_running_with(module.params["name"], parameters)
            if module.params["rootfs"] == "/"
            else []
        )
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(pending_load=pending, **answer)


if __name__ == "__main__":
    main()
