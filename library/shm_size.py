#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: enlarges /dev/shm. Implementation:
module_utils/unhang_node/change/host/shm_size.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shm_size
short_description: Make /dev/shm as large as jobs need it
version_added: "0.1.0"
description:
  - Remounts V(/dev/shm) with O(size_bytes) if it is smaller, and writes a unit that does the same
    at every boot.
  - A larger V(/dev/shm) is kept. A size above the node's memory is refused.
  - In a container whose runtime sets the size of V(/dev/shm) it changes nothing and reports that in
    RV(needs_manual_action).
  - O(state=absent) removes the unit, and restores the earlier size of V(/dev/shm) if its files fit.
options:
  size_bytes:
    description: The minimum size. Needed with O(state=present).
    type: int
  state:
    description: Whether to set the size, or to undo what this module did.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Make room for the segments of NCCL and data loaders
  shm_size:
    size_bytes: 68719476736
"""

RETURN = r"""
before:
  description: Bytes of V(/dev/shm), when they change.
  returned: success
  type: dict
  sample: {/dev/shm: 67108864}
after:
  description: The values after the change.
  returned: success
  type: dict
  sample: {/dev/shm: 68719476736}
files:
  description: Files that were changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/system/unhang-shm-size.service]
lines:
  description: Always empty.
  returned: success
  type: list
  elements: dict
  sample: []
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import state_path
from ansible.module_utils.unhang_node.change.config.own_files import (
    FilePlan,
    module_result,
    write_plan,
)
from ansible.module_utils.unhang_node.change.host import shm_size as run
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, act
from ansible.module_utils.unhang_node.change.journal.running_values import Change, keep_running
from ansible.module_utils.unhang_node.change.journal.saved_states import keep_files

OPTIONS = {
    "size_bytes": {"type": "int"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **ON_ROOTFS,
}


def make_larger(module: AnsibleModule, rootfs: str, size: int) -> dict[str, Any]:
    """The result for state present."""
    live = rootfs == "/"
    why = run.why_not() if live else None
    if why:
        enough = run.size_now() >= size
        return module_result(FilePlan(manual=[] if enough else [why]))
    plan = run.plan_size(rootfs, size)
    effects = (
        [(run.SHM, run.size_now(), run.rounded(size))] if live and run.size_now() < size else []
    )
    if not module.check_mode:
        if effects:
            keep_files(rootfs, module.params["state_id"], [state_path(run.OWNER)])
            keep_running(rootfs, module.params["state_id"], [Change("shm_size", *effects[0])])
            run.remember(size)
            run.remount(size)
        write_plan(rootfs, run.OWNER, plan, False, module.params["state_id"])
    return module_result(plan, effects)


def take_back(module: AnsibleModule, rootfs: str) -> dict[str, Any]:
    """The result for state absent."""
    plan = run.plan_without(rootfs)
    before = run.size_before() if rootfs == "/" else None
    effects = [(run.SHM, run.size_now(), before)] if before is not None else []
    if not module.check_mode:
        keep_running(
            rootfs, module.params["state_id"], [Change("shm_size", *row) for row in effects]
        )
        write_plan(rootfs, run.OWNER, plan, True, module.params["state_id"])
        if effects:
            run.remount(before)
        run.forget(rootfs)
    return module_result(plan, effects)


def apply(module: AnsibleModule) -> dict[str, Any]:
    """The result. Raises OSError, ValueError."""
    if module.params["state"] == "present":
        return make_larger(module, module.params["rootfs"], module.params["size_bytes"])
    return take_back(module, module.params["rootfs"])


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        required_if=[("state", "present", ["size_bytes"])],
    )
    act(module, apply)


if __name__ == "__main__":
    main()
