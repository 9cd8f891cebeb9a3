#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: disables environment settings in every system file that sets them.
Implementation: module_utils/unhang_node/change/config."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disabled_setting
short_description: Disable environment settings of a node and keep their lines as comments
version_added: "0.1.0"
description:
  - Searches the files that the audit reads (V(/etc/nccl.conf), V(/etc/environment),
    V(/etc/profile.d), systemd units, Slurm's TaskProlog, enroot)
    for lines that set the given names, and turns each into a comment that keeps the line.
  - Changes a line only if it sets that one name and nothing else. All other lines are returned in
    RV(needs_manual_action) for a person.
  - Saves each line under V(/var/lib/unhang) before it changes a file, so that O(state=restored)
    restores exactly these lines.
  - Runs no daemon-reload and restarts nothing. A setting of a systemd unit stays in force until
    systemd is reloaded or the node boots.
options:
  names:
    description: Names of variables.
    type: list
    elements: str
    default: []
  settings:
    description: Names with values. A line that sets this value is kept.
    type: dict
    default: {}
  owner:
    description: Name of the calling role, under which the lines are saved.
    type: str
    required: true
  state:
    description: Whether the lines are disabled, or the disabled ones restored.
    type: str
    choices: [disabled, restored]
    default: disabled
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Disable lines that choose GPUs for every job
  disabled_setting:
    names: [CUDA_VISIBLE_DEVICES]
    owner: gpu_binding

- name: Restore the lines
  disabled_setting:
    owner: gpu_binding
    state: restored
"""

RETURN = r"""
lines:
  description: Lines that this call disabled, or would disable.
  returned: success
  type: list
  elements: dict
  sample: [{file: /etc/environment, line: 3, text: CUDA_VISIBLE_DEVICES=0}]
files:
  description: Files that were changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/environment]
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: dict
  sample: [{file: /etc/profile.d/x.sh, line: 2, why: "the line ... does more than set
    NCCL_DEBUG; take it out by hand"}]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.config.disabled_setting import plan_disable
from ansible.module_utils.unhang_node.change.config.own_files import (
    module_result,
    plan_gone,
    write_plan,
)
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, act

OPTIONS = {
    "names": {"type": "list", "elements": "str", "default": []},
    "settings": {"type": "dict", "default": {}},
    "owner": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["disabled", "restored"], "default": "disabled"},
    **ON_ROOTFS,
}


def apply(module: AnsibleModule) -> dict[str, Any]:
    """Writes the files unless in check mode, and returns the result. Raises OSError, ValueError."""
    given, restored = module.params, module.params["state"] == "restored"
    rootfs, owner = given["rootfs"], given["owner"]
    settings = {name: str(value) for name, value in given["settings"].items()}
    plan = (
        plan_gone(rootfs, owner, ()) if restored else plan_disable(rootfs, given["names"], settings)
    )
    if not module.check_mode:
        write_plan(rootfs, owner, plan, restored, given["state_id"])
    return module_result(plan)


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    act(module, apply)


if __name__ == "__main__":
    main()
