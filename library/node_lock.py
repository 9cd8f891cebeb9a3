#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: locks a node for one run. Implementation:
module_utils/unhang_node/change/journal/node_lock.py; plugins/action/node_lock.py is the
controller's side."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_lock
short_description: Let one run at a time change a node
version_added: "0.1.0"
description:
  - Takes or releases V(/var/lib/unhang/lock.json), which names the run that changes the node.
    Another run waits O(wait_s) and is then refused, with the
    name of the holder.
  - Each time that the node is locked, its token RV(fencing) increases. Every module that changes
    the node passes this token, so that a run that has
    lost the lock is stopped. A call with the current token in O(fencing) has the lock already, and
    RV(acquired) is then false; the id of a run is not
    enough. The call that acquired the lock must release it, so that roles can be run alone or
    together.
  - A lock is taken over, and this is reported, if it has expired, or if the node has booted since
    and its holder had not set O(across_reboot). Its age is
    measured by the node's time since its boot, not by its clock.
  - Never reports a change, so that a second run of a role changes nothing.
options:
  state:
    description: Whether to take or to release the lock. Releasing does nothing to a lock of another
      run.
    type: str
    choices: [held, free]
    default: held
  run:
    description: Id of the run, the same for all calls of one run.
    type: str
    required: true
  by:
    description: Who runs it, shown to a run that is refused.
    type: str
    default: unknown
  controller:
    description: The process of the run, from the filter P(unhang_run_controller#filter), so that
      its controller can see whether it has ended.
    type: dict
  fencing:
    description: The token of the run's lock; 0 if it has none yet.
    type: int
    default: 0
  wait_s:
    description: Seconds to wait until another run releases the lock.
    type: int
    default: 0
  expires_s:
    description: Seconds after which the lock may be taken over, unless its run has renewed it or
      recorded a step (M(saved_state)) meanwhile.
    type: int
    default: 14400
  across_reboot:
    description:
      - The run is about to reboot the node, and the lock stays valid after that.
      - Waits until no other process changes packages, and fails if one still does after
        O(packages_wait_s), for a reboot would end it half way.
    type: bool
    default: false
  packages_wait_s:
    description: Seconds to wait with O(across_reboot) until no other process has the package
      manager's locks.
    type: int
    default: 900
  boot_id:
    description: Boot in which the node must be. Otherwise the call fails, before it changes
      anything.
    type: str
    default: ""
  takes_over:
    description: Id of a run that has certainly ended, whose lock may be taken over.
    type: str
    default: ""
  take_over_wait_s:
    description: The controller looks whether the process of a run that holds the lock has ended
      there, and takes its lock over. It waits this long for modules of that run, or of
      O(takes_over), that still run on the node.
    type: int
  read_at:
    description: Where the facts of the node are read (V(unhang_rootfs)). If O(rootfs) is not among
      them, the controller refuses the node, because the machine behind the connection is another
      one. Empty if they are read from the node itself.
    type: list
    elements: str
    default: []
extends_documentation_fragment: [unhang.rootfs]
attributes:
  check_mode:
    description: Writes nothing, does not wait, and returns the holder of the lock.
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

- name: Unlock the node
  node_lock:
    state: free
    run: "{{ unhang_run }}"
  when: lock.acquired
"""

RETURN = r"""
acquired:
  description: True if this call took the lock; false if the run had it already, if it was released,
    and in check mode.
  returned: success
  type: bool
  sample: true
fencing:
  description: The token to pass to every module that changes the node; 0 after the lock was
    released, and in check mode.
  returned: success
  type: int
  sample: 7
freed:
  description: True if this call released the lock, or would.
  returned: state is free
  type: bool
  sample: false
previews:
  description: True in check mode, however that came about; V(ansible_check_mode) is true only with
    C(--check).
  returned: success
  type: bool
  sample: false
holder:
  description: Content of the lock now, or of the refusing lock; none if the node is not locked.
  returned: always
  type: dict
  sample: {run: 20261120T070000Z-ops-ctl1-4711, by: ops@ctl1, since: "2026-11-20T07:00:00Z",
    expires: "2026-11-20T11:00:00Z"}
boot_id:
  description: The present boot of the node.
  returned: state is held
  type: str
  sample: 5f3d6b0a-1c8e-4f0e-9a55-0b7f2d1a9c11
untouched:
  description: True if the node is not in O(boot_id).
  returned: failure
  type: bool
  sample: true
needs_root:
  description: True if the connecting user may not lock the node; in check mode, if it could not.
  returned: always
  type: bool
  sample: false
taken_over:
  description: The lock of another run that this one has taken over, with the reason; none
    otherwise. RV(msg) is then a sentence about it, printed as by M(ansible.builtin.debug).
  returned: state is held
  type: dict
  sample: null
msg:
  description: Which run was taken over and why, or why the node was not locked.
  returned: on failure, or if a lock was taken over
  type: str
  sample: "took over from run a by ops@ctl1, which had the node since 2026-11-20T07:00:00Z: it
    expired, 14400 s after the last sign of work"
run:
  description: O(run).
  returned: always
  type: str
  sample: 20261120T070000Z-ops-ctl1-4711
rootfs:
  description: O(rootfs).
  returned: always
  type: str
  sample: /
"""

import errno
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.journal.node_lock import (
    LockRequest,
    NodeLocked,
    free_lock,
    may_lock,
    read_boot_id,
    read_lock,
    take_lock,
)
from ansible.module_utils.unhang_node.change.package.quiet import wait_until_unchanging

OPTIONS = {
    "state": {"type": "str", "choices": ["held", "free"], "default": "held"},
    "run": {"type": "str", "required": True},
    "by": {"type": "str", "default": "unknown"},
    "controller": {"type": "dict"},
    "fencing": {"type": "int", "default": 0},
    "wait_s": {"type": "int", "default": 0},
    "expires_s": {"type": "int", "default": 14400},
    "across_reboot": {"type": "bool", "default": False},
    "packages_wait_s": {"type": "int", "default": 900},
    "boot_id": {"type": "str", "default": ""},
    "takes_over": {"type": "str", "default": ""},
    "take_over_wait_s": {"type": "int"},
    "read_at": {"type": "list", "elements": "str", "default": []},
    "rootfs": {"type": "path", "default": "/"},
}


class OtherBoot(ValueError):
    """The node has booted, and nobody expected it."""


def apply(module: AnsibleModule) -> dict[str, Any]:
    """The result. Raises NodeLocked, OtherBoot, OSError, ValueError."""
    rootfs, run, boot_id = (module.params[name] for name in ("rootfs", "run", "boot_id"))
    now = read_boot_id(rootfs)
    if boot_id not in ("", now):
        raise OtherBoot(
            f"the node has booted, and this run has not ordered it: its boot is {now}, not"
            f" {boot_id}"
        )
    if module.params["state"] == "free":
        freed = free_lock(rootfs, run, module.params["fencing"], module.check_mode)
        return {"acquired": False, "fencing": 0, "freed": freed, "holder": read_lock(rootfs)}
    if module.params["across_reboot"] and not module.check_mode:
        wait_until_unchanging(rootfs, module.params["packages_wait_s"])
    request = LockRequest(**{name: module.params[name] for name in LockRequest._fields})
    taken = take_lock(rootfs, request, module.params["wait_s"], module.check_mode)
    return {**taken._asdict(), "boot_id": now}


def main() -> None:
    """Locks or unlocks the node, and exits with the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        needs_root = module.check_mode and not may_lock(module.params["rootfs"])
        module.exit_json(
            changed=False, previews=module.check_mode, needs_root=needs_root, **apply(module)
        )
    except NodeLocked as refused:
        module.fail_json(msg=str(refused), holder=refused.holder, needs_root=False)
    except OtherBoot as problem:
        module.fail_json(msg=str(problem), holder=None, needs_root=False, untouched=True)
    except (OSError, ValueError) as problem:
        module.fail_json(
            msg=str(problem),
            holder=None,
            needs_root=getattr(problem, "errno", None) == errno.EACCES,
        )


if __name__ == "__main__":
    main()
