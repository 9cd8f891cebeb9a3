#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module by which a run has a node to itself; how lies in module_utils/unhang_node/change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_lock
short_description: Let one run at a time change a node
version_added: "0.1.0"
description:
  - Takes or frees V(/var/lib/unhang/lock.json), which names the run that changes the node. Another run waits O(wait_s) and is then refused, and told which.
  - Each time that the node is taken its number, RV(fencing), goes up. Every module that acts gives it, so that a run which has lost the node is stopped.
    Who gives it with O(fencing) has the node already, and RV(acquired) is then false; the id of a run alone opens nothing. Who acquired the lock frees it,
    so that roles may be run alone or together.
  - A lock is taken over, and it is reported, when it has expired, or when the node has booted since and its holder had not said O(across_reboot). How old it is
    the node's time since its boot tells, not its clock.
  - Counts as no change; a second run of a role still changes nothing.
options:
  state:
    description: Whether the run has the node, or lets go of it. Freeing does nothing to a lock of another run.
    type: str
    choices: [held, free]
    default: held
  run:
    description: Id of the run. One for all that belongs together.
    type: str
    required: true
  by:
    description: Who runs it, for those who are refused.
    type: str
    default: unknown
  controller:
    description: Which process runs it, as the filter P(unhang_run_controller#filter) says, so that its controller can tell whether it has ended.
    type: dict
  fencing:
    description: The number that the run was given, 0 when it has none yet.
    type: int
    default: 0
  wait_s:
    description: Seconds to wait for another run to let go.
    type: int
    default: 0
  expires_s:
    description: Seconds after which the lock may be taken over, unless its run took it again or wrote down a step (M(saved_state)) meanwhile.
    type: int
    default: 14400
  across_reboot:
    description: The run is about to boot the node; the lock stands then too.
    type: bool
    default: false
  takes_over:
    description: Id of a run that is over for sure, whose lock may be taken over.
    type: str
    default: ""
extends_documentation_fragment: [unhang.rootfs]
attributes:
  check_mode:
    description: Writes nothing, waits for nobody, and returns who has the node.
    support: full
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Lock the node
  node_lock:
    run: "{{ unhang_run }}"
    by: ops@controller
    wait_s: 60
  register: lock

- name: Let go
  node_lock:
    state: free
    run: "{{ unhang_run }}"
  when: lock.acquired
"""

RETURN = r"""
acquired:
  description: True when this call took the lock; false when the run had it already, when it was freed, and in check mode.
  returned: success
  type: bool
  sample: true
fencing:
  description: The number to give with every module that acts; 0 when the lock was freed, and in check mode.
  returned: success
  type: int
  sample: 7
freed:
  description: True when this call let go of the node, or would.
  returned: state is free
  type: bool
  sample: false
previews:
  description: True in check mode, however that came about; V(ansible_check_mode) tells of C(--check) alone.
  returned: success
  type: bool
  sample: false
holder:
  description: What the lock says now, or who has it where that was refused; none when the node is free.
  returned: always
  type: dict
  sample: {run: 20261120T070000Z-ops-ctl1-4711, by: ops@ctl1, since: "2026-11-20T07:00:00Z", expires: "2026-11-20T11:00:00Z"}
taken_over:
  description: The lock of another run in whose place this one is now, with why; none otherwise.
  returned: state is held
  type: dict
  sample: null
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.journal.node_lock import LockRequest, NodeLocked, free_lock, read_lock, take_lock

OPTIONS = {
    "state": {"type": "str", "choices": ["held", "free"], "default": "held"},
    "run": {"type": "str", "required": True},
    "by": {"type": "str", "default": "unknown"},
    "controller": {"type": "dict"},
    "fencing": {"type": "int", "default": 0},
    "wait_s": {"type": "int", "default": 0},
    "expires_s": {"type": "int", "default": 14400},
    "across_reboot": {"type": "bool", "default": False},
    "takes_over": {"type": "str", "default": ""},
    "rootfs": {"type": "path", "default": "/"},
}


def apply(module: AnsibleModule) -> dict[str, Any]:
    """The answer. Raises NodeLocked, OSError, ValueError."""
    rootfs, run = module.params["rootfs"], module.params["run"]
    if module.params["state"] == "free":
        freed = free_lock(rootfs, run, module.params["fencing"], module.check_mode)
        return {"acquired": False, "fencing": 0, "freed": freed, "holder": read_lock(rootfs)}
    request = LockRequest(**{name: module.params[name] for name in LockRequest._fields})
    return take_lock(rootfs, request, module.params["wait_s"], module.check_mode)._asdict()


def main() -> None:
    """Takes or frees the lock, answers."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        module.exit_json(changed=False, previews=module.check_mode, **apply(module))
    except NodeLocked as refused:
        module.fail_json(msg=str(refused), holder=refused.holder)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem), holder=None)


if __name__ == "__main__":
    main()
