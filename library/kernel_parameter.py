#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: sets a kernel parameter now and at every boot. Implementation:
module_utils/unhang_node/change/host/kernel_parameter.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_parameter
short_description: Set a kernel parameter now and for every boot
version_added: "0.1.0"
description:
  - Writes V(/etc/sysctl.d/zz-unhang-NAME.conf) and sets the running kernel's value.
  - Lines of others in V(/etc/sysctl.d) and V(/etc/sysctl.conf) that set another value are turned
    into comments. They and the kernel's value are saved
    under V(/var/lib/unhang) first, and O(state=absent) restores them.
  - If the parameter cannot be set, as in most containers, it changes nothing and reports that in
    RV(needs_manual_action).
options:
  name:
    description: Name with dots, such as V(kernel.numa_balancing).
    type: str
    required: true
  value:
    description: The value to set. Needed with O(state=present).
    type: str
  state:
    description: Whether to set the parameter, or to undo what this module did.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Switch automatic NUMA balancing off
  kernel_parameter:
    name: kernel.numa_balancing
    value: "0"
"""

RETURN = r"""
before:
  description: The running value, when it changes.
  returned: success
  type: dict
  sample: {kernel.numa_balancing: "1"}
after:
  description: The running value afterwards, when it changes.
  returned: success
  type: dict
  sample: {kernel.numa_balancing: "0"}
files:
  description: Files that were changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/sysctl.d/zz-unhang-kernel.numa_balancing.conf]
lines:
  description: Lines of others that were turned into comments.
  returned: success
  type: list
  elements: dict
  sample: [{file: /etc/sysctl.d/99-site.conf, line: 3, text: kernel.numa_balancing = 1}]
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from collections.abc import Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import state_path
from ansible.module_utils.unhang_node.change.config.own_files import (
    FilePlan,
    module_result,
    write_plan,
)
from ansible.module_utils.unhang_node.change.host import kernel_parameter as run
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, act
from ansible.module_utils.unhang_node.change.journal.running_values import Change, keep_running
from ansible.module_utils.unhang_node.change.journal.saved_states import keep_files

OPTIONS = {
    "name": {"type": "str", "required": True},
    "value": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **ON_ROOTFS,
}


def changes_of(effects: Iterable[tuple[str, str, str]]) -> list[Change]:
    """The changes to record in a saved state."""
    return [
        Change(
            kind="sysctl", name=name, value=" ".join(before.split()), wanted=" ".join(after.split())
        )
        for name, before, after in effects
    ]


def apply(module: AnsibleModule) -> dict[str, Any]:
    """Makes the changes unless in check mode, and returns the result. Raises OSError,
    ValueError."""
    rootfs, value, live, state_id = (
        module.params["rootfs"],
        module.params["value"],
        module.params["rootfs"] == "/",
        module.params["state_id"],
    )
    name = run.dotted(module.params["name"])
    if module.params["state"] == "absent":
        plan, back = run.plan_without(rootfs, name)
        effects = (
            [(name, run.running_value(rootfs, name), back)] if back is not None and live else []
        )
        if not module.check_mode:
            keep_running(rootfs, state_id, changes_of(effects))
            write_plan(rootfs, run.owner_of(name), plan, True, state_id)
            run.forget(rootfs, name)
    else:
        why = run.why_not(rootfs, name)
        if why and live:
            return module_result(FilePlan(manual=[why]))
        plan, now = run.plan_parameter(rootfs, name, value)
        effects = [(name, now, value)] if now is not None and live else []
        if not module.check_mode:
            if effects:
                keep_files(rootfs, state_id, [state_path(run.owner_of(name))])
                keep_running(rootfs, state_id, changes_of(effects))
                run.remember(rootfs, name, now, value)
            write_plan(rootfs, run.owner_of(name), plan, False, state_id)
    if effects and not module.check_mode:
        run.set_running(rootfs, name, effects[0][2])
    return module_result(plan, effects)


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
