#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: removes stale locks from caches of torch's extensions. Implementation:
module_utils/unhang_node/change/host/extension_locks.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: extension_lock
short_description: Remove locks from torch's extension caches that no process holds
version_added: "0.1.0"
description:
  - An interrupted build of a CUDA extension leaves its lock behind, and every later start waits for
    that lock for ever.
  - Removes a lock only if every process of the node could be checked and none has it open, and
    checks again right before it removes the lock.
options:
  caches:
    description: Folders such as V(/root/.cache/torch_extensions), or a build folder of Megatron's
      fused kernels.
    type: list
    elements: path
    required: true
extends_documentation_fragment: [unhang, unhang.fencing]
"""

EXAMPLES = r"""
- name: Remove locks of builds that were killed
  extension_lock:
    caches: [/root/.cache/torch_extensions]
"""

RETURN = r"""
before:
  description: Locks that no process held.
  returned: success
  type: list
  elements: str
  sample: [/root/.cache/torch_extensions/py310_cu121/fused/lock]
after:
  description: Locks that remain, or would remain.
  returned: success
  type: list
  elements: str
  sample: []
needs_manual_action:
  description: Locks that were skipped, and why.
  returned: success
  type: list
  elements: dict
  sample: [{path: /home/a/.cache/torch_extensions/py310_cu121/op/lock, why: a process holds it}]
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.host.extension_locks import read_locks, remove_lock
from ansible.module_utils.unhang_node.change.journal.acting import enter

OPTIONS = {
    "fencing": {"type": "int", "default": 0},
    "caches": {"type": "list", "elements": "path", "required": True},
}


def main() -> None:
    """Reads, removes unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    try:
        stale, skipped = read_locks(module.params["caches"], time.time())
        gone = stale if module.check_mode else [path for path in stale if remove_lock(path)]
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    after = [path for path in stale if path not in gone]
    module.exit_json(
        changed=bool(gone),
        before=stale,
        after=after,
        needs_manual_action=[{"path": path, "why": why} for path, why in skipped]
        + [{"path": path, "why": "a build took it meanwhile"} for path in after],
        diff={
            "before": "".join(path + "\n" for path in stale),
            "after": "".join(path + "\n" for path in after),
            "before_header": "locks",
        },
    )


if __name__ == "__main__":
    main()
