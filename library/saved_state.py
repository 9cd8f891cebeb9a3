#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: saves what is needed to undo a change before it is made. Implementation:
module_utils/unhang_node/change/journal."""

from __future__ import annotations

DOCUMENTATION = r"""
module: saved_state
short_description: Save on a node what is needed to undo a change, and how far the change came
version_added: "0.1.0"
description:
  - Keeps a folder for each change of a role in V(/var/lib/unhang/states), readable only by root,
    with each earlier file, the steps, and whether the
    change was completed. M(state_restore) undoes it.
  - If the newest state is of the same role and is open or failed, O(state=begun) continues it, and
    RV(stopped) says where it had stopped; the first saved
    version of a file is the original one.
  - O(state=finished) and O(state=failed) remove a state in which nothing was changed.
  - O(state=begun) with O(keep) removes the oldest closed states with their packages, if this run
    has the node's lock. An open state and all states after
    it are kept, because a rollback to it needs them.
  - Never reports a change, so that a second run of a role changes nothing.
options:
  state:
    description: What to record.
    type: str
    choices: [begun, step, finished, failed, listed]
    required: true
  id:
    description: Id of the state. With an empty one nothing is written, as in check mode.
    type: str
    default: ""
  role:
    description: The role that begins the state.
    type: str
    default: ""
  run:
    description: Id of the run, as M(node_lock) has it. Its lock is renewed with each call.
    type: str
    default: ""
  fencing:
    description: The token of the run's lock. Nothing is written if another run has the lock now.
      Not checked with 0.
    type: int
    default: 0
  files:
    description: Files to save as they are now. More can be added with each step; each file is saved
      once.
    type: list
    elements: path
    default: []
  keep:
    description: How many states that are closed, or were rolled back, to keep on the node. 0 keeps
      all.
    type: int
    default: 0
  step:
    description: Name of the next step.
    type: str
    default: ""
  message:
    description: The reason of a failure.
    type: str
    default: ""
  unlocks:
    description: Release the run's lock too, even if O(state=finished) fails; then also with an
      empty O(id).
    type: bool
    default: false
extends_documentation_fragment: [unhang.rootfs]
attributes:
  check_mode:
    description: Writes nothing and returns an empty id.
    support: full
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Begin a saved state
  saved_state:
    state: begun
    role: gpu_driver
    run: "{{ unhang_run }}"
    files: [/etc/apt/preferences.d/unhang-driver]
  register: saved

- name: Record the next step
  saved_state:
    state: step
    id: "{{ saved.id }}"
    step: packages

- name: Finish the saved state
  saved_state:
    state: finished
    id: "{{ saved.id }}"

- name: List the states that can be restored
  saved_state:
    state: listed
  register: saved
"""

RETURN = r"""
id:
  description: The state's id. Empty in check mode, and after a state without changes was removed.
  returned: success
  type: str
  sample: 20261120T070000Z-gpu_driver
folder:
  description: Folder of the state on the node; empty with an empty id.
  returned: success
  type: str
  sample: /var/lib/unhang/states/20261120T070000Z-gpu_driver
msg:
  description: What was found of earlier runs, with O(state=begun), and RV(needs_manual_action),
    with O(state=finished); printed as by M(ansible.builtin.debug).
  returned: on failure, or if there is something to report
  type: str
  sample: "20261120T070000Z-kernel: removed, can no longer be restored (node_change_keep_states is
    10)"
stopped:
  description: Where an earlier run of the role had stopped, whose state this run continues (or
    would, in check mode); none otherwise.
  returned: success
  type: dict
  sample: {id: 20261120T070000Z-gpu_driver, run: a, status: open, step: packages,
    at: "2026-11-20T07:00:09Z", message: null}
needs_manual_action:
  description: Configuration files that stay as an admin has them, with the package's file beside
    them.
  returned: success
  type: list
  elements: str
  sample: []
pruned:
  description: Ids of states that were removed because of O(keep).
  returned: success
  type: list
  elements: str
  sample: []
states:
  description: All states of the node, oldest first.
  returned: state is listed
  type: list
  elements: dict
  sample: [{id: 20261120T070000Z-gpu_driver, role: gpu_driver, run: a, status: finished,
    begun: "2026-11-20T07:00:00Z", steps: []}]
lines:
  description: The same states, one line each.
  returned: state is listed
  type: list
  elements: str
  sample: ["20261120T070000Z-gpu_driver: finished, begun 2026-11-20T07:00:00Z by run a, last step
    packages"]
"""

import calendar
import time
from collections.abc import Iterator
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import STATES
from ansible.module_utils.unhang_node.change.journal import saved_states as saved
from ansible.module_utils.unhang_node.change.journal.node_lock import (
    demand_lock,
    free_lock,
    read_lock,
    remove_if_empty,
    renew_lock,
)
from ansible.module_utils.unhang_node.change.journal.pruning import prune_states
from ansible.module_utils.unhang_node.change.package.apt.config_files import kept_config_files
from ansible.module_utils.unhang_node.change.package.saved import read_saved as read_packages
from ansible.module_utils.unhang_node.change.rollback.left_values import read_left

OPTIONS = {
    "state": {
        "type": "str",
        "choices": ["begun", "step", "finished", "failed", "listed"],
        "required": True,
    },
    "id": {"type": "str", "default": ""},
    "role": {"type": "str", "default": ""},
    "run": {"type": "str", "default": ""},
    "fencing": {"type": "int", "default": 0},
    "files": {"type": "list", "elements": "path", "default": []},
    "keep": {"type": "int", "default": 0},
    "step": {"type": "str", "default": ""},
    "message": {"type": "str", "default": ""},
    "unlocks": {"type": "bool", "default": False},
    "rootfs": {"type": "path", "default": "/"},
}


def begin(module: AnsibleModule) -> tuple[str, dict[str, Any] | None, list[str]]:
    """(id, the step at which an earlier run stopped, ids of old states that were removed). Raises
    OSError, ValueError."""
    rootfs, role, run = module.params["rootfs"], module.params["role"], module.params["run"]
    if module.check_mode:
        states = saved.read_states(rootfs)
        saved.refuse_broken(states)
        return "", saved.unfinished_of(states, role), []
    lock, mine = read_lock(rootfs), (run, module.params["fencing"])
    # Without the lock another run may be rolling back through these old states.
    pruned = (
        prune_states(rootfs, module.params["keep"])
        if module.params["keep"] > 0 and lock and (lock["run"], lock["fencing"]) == mine
        else []
    )
    state, stopped = saved.begin_state(rootfs, role, run, module.params["files"])
    return state["id"], stopped, pruned


def kept_settings(rootfs: str, state_id: str) -> list[str]:
    """A line for each configuration file that stays as an admin has it beside the one of a package
    that was changed. Raises OSError, ValueError."""
    changed = read_packages(rootfs, f"{STATES}/{state_id}") or {}
    if changed.get("manager") != "dpkg":
        return []
    began = calendar.timegm(
        time.strptime(saved.read_state_of(rootfs, state_id)["begun"], "%Y-%m-%dT%H:%M:%SZ")
    )
    names = {row["name"].split(":")[0] for row in changed["packages"] if row["after"]}
    return kept_config_files(rootfs, names, began)


def record(module: AnsibleModule) -> str:
    """Records a step or the end of a state that was begun; returns the state's id, "" if it was
    removed. Raises OSError, ValueError."""
    rootfs, state_id, what = module.params["rootfs"], module.params["id"], module.params["state"]
    if module.check_mode or not state_id:
        return ""
    if what == "step":
        saved.add_step(rootfs, state_id, module.params["step"])
        saved.keep_files(rootfs, state_id, module.params["files"])
        return state_id
    left = read_left(rootfs, state_id)
    kept = (
        saved.fail_state(rootfs, state_id, module.params["message"], left)
        if what == "failed"
        else saved.finish_state(rootfs, state_id, left, kept_settings(rootfs, state_id))
    )
    if not kept:
        remove_if_empty(rootfs)
    return state_id if kept else ""


def report(
    pruned: list[str], stopped: dict[str, Any] | None, keep: int, manual: list[str]
) -> Iterator[str]:
    """What was found of earlier runs, and what is left to a person at the end."""
    if pruned:
        yield (
            f"{', '.join(pruned)}: removed, can no longer be restored (node_change_keep_states is"
            f" {keep})"
        )
    if stopped:
        why = f": {stopped['message']}" if stopped["message"] else ""
        yield (
            f"continuing with state {stopped['id']}, which run {stopped['run']} left"
            f" {stopped['status']} at step {stopped['step']} ({stopped['at']}){why}"
        )
    yield from manual


def apply(module: AnsibleModule) -> dict[str, Any]:
    """The result. Raises OSError, ValueError."""
    rootfs, what = module.params["rootfs"], module.params["state"]
    if what == "listed":
        states = saved.read_states(rootfs)
        return {
            "id": "",
            "folder": "",
            "needs_manual_action": [],
            "stopped": None,
            "pruned": [],
            "states": states,
            "lines": [saved.state_line(state) for state in states],
        }
    if not module.check_mode and (what == "begun" or module.params["id"]):
        demand_lock(rootfs, module.params["fencing"])
        renew_lock(rootfs, module.params["run"], module.params["fencing"])
    state_id, stopped, pruned = begin(module) if what == "begun" else (record(module), None, [])
    known = saved.read_state_of(module.params["rootfs"], state_id) if state_id else {}
    manual = known.get("look_at") or []
    msg = "; ".join(report(pruned, stopped, module.params["keep"], manual * (what == "finished")))
    return {
        **({"msg": msg} if msg else {}),
        "id": state_id,
        "needs_manual_action": manual,
        "folder": f"{STATES}/{state_id}" if state_id else "",
        "stopped": stopped,
        "pruned": pruned,
    }


def main() -> None:
    """Makes the requested call unless in check mode, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        required_if=[("state", "begun", ("role",)), ("state", "step", ("step",))],
    )
    run, fencing = module.params["run"], module.params["fencing"]
    try:
        try:
            result = apply(module)
        finally:
            if module.params["unlocks"]:
                free_lock(module.params["rootfs"], run, fencing, module.check_mode)
        module.exit_json(changed=False, **result)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))


if __name__ == "__main__":
    main()
