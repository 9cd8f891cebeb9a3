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

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.config.own_files import (
    module_result,
    plan_own,
    write_plan,
)
from ansible.module_utils.unhang_node.change.journal.acting import enter

OPTIONS = {
    "path": {"type": "path", "required": True},
    "lines": {"type": "list", "elements": "str", "default": []},
    "comment": {"type": "str", "default": "#"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "state_id": {"type": "str", "default": ""},
    "fencing": {"type": "int", "default": 0},
    "rootfs": {"type": "path", "default": "/"},
}


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    rootfs, path, present = (
        module.params["rootfs"],
        module.params["path"],
        module.params["state"] == "present",
    )
    try:
        if present and not module.params["lines"]:
            raise ValueError(
                "lines: expected at least one, found none; state absent removes the file"
            )
        plan = plan_own(
            rootfs, {path: module.params["lines"] if present else []}, sign=module.params["comment"]
        )
        if plan.texts and not module.check_mode:
            write_plan(rootfs, None, plan, False, module.params["state_id"])
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(**module_result(plan))


if __name__ == "__main__":
    main()
