#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: manages a configuration file of unhang's own. Implementation:
module_utils/unhang_node/change/config/own_files.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: own_file
short_description: Write or remove a configuration file that belongs to unhang
version_added: "0.1.0"
description:
  - Writes O(lines) below a first line that names the writer. A file without that first line belongs
    to somebody else, and is refused.
options:
  path:
    description: Path of the file on the node.
    type: path
    required: true
  lines:
    description: Its lines. Needed with O(state=present).
    type: list
    elements: str
    default: []
  comment:
    description: The characters that begin a comment in the file.
    type: str
    default: '#'
  state:
    description: Whether the file exists.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Keep a user's shared memory after a logout
  own_file:
    path: /etc/systemd/logind.conf.d/zz-unhang.conf
    lines: ['[Login]', RemoveIPC=no]
"""

RETURN = r"""
files:
  description: The file, if it was changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/logind.conf.d/zz-unhang.conf]
needs_manual_action:
  description: Always empty.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.config.own_files import (
    module_result,
    plan_own,
    write_plan,
)
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, act

OPTIONS = {
    "path": {"type": "path", "required": True},
    "lines": {"type": "list", "elements": "str", "default": []},
    "comment": {"type": "str", "default": "#"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **ON_ROOTFS,
}


def apply(module: AnsibleModule) -> dict[str, Any]:
    """Writes the file unless in check mode, and returns the result. Raises OSError, ValueError."""
    given, present = module.params, module.params["state"] == "present"
    if present and not given["lines"]:
        raise ValueError("lines: expected at least one, found none; state absent removes the file")
    lines = given["lines"] if present else []
    plan = plan_own(given["rootfs"], {given["path"]: lines}, sign=given["comment"])
    if plan.texts and not module.check_mode:
        write_plan(given["rootfs"], None, plan, False, given["state_id"])
    return module_result(plan)


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    act(module, apply)


if __name__ == "__main__":
    main()
