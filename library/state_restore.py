#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: rolls a node back to a saved state. Implementation:
module_utils/unhang_node/change/rollback."""

from __future__ import annotations

DOCUMENTATION = r"""
module: state_restore
short_description: Roll a node back to its state before a role changed it
version_added: "0.1.0"
description:
  - Rolls back the saved state O(id), after all states that were saved later; or the states of the
    run O(run) alone, if no later run has changed the same.
  - Waits for the package manager's lock, and refuses if packages cannot be restored, before it
    changes anything.
  - Releases the holds that unhang set, then restores values of the running system, the default boot
    entry, packages, files with mode and owner, and the
    earlier holds.
  - Restores only what is still as unhang wrote it. A file, package, hold, link of a unit, boot
    entry or value that somebody else has changed since stays, and is listed in
    RV(needs_manual_action).
  - Values of the running system are sysctls, the size of V(/dev/shm), limits of services, services
    that were started, and modes of GPUs. Refuses, before it changes anything, to change the compute
    mode of a GPU that a job uses. No kernel module is unloaded.
  - Does not reboot and reloads no driver. After a driver or a kernel was restored, the node runs
    the other one until it boots.
  - After a failure the next call starts again from the beginning.
options:
  id:
    description: Id of a saved state, or V(latest) for the newest that was not rolled back. See
      M(saved_state) with O(saved_state#module:state=listed).
    type: str
  run:
    description: Id of a run, instead of O(id). Restores what this run has changed, and no more.
    type: str
    default: ""
  through:
    description: With O(run), also rolls back all states that were saved after those of the run.
    type: bool
    default: false
  packages:
    description: Packages (names or patterns) to restore although somebody has changed them since.
      Without it they are not changed, and are listed.
    type: list
    elements: str
    default: []
  lock_timeout_s:
    description: Seconds to wait while another process has the package manager's lock.
    type: int
    default: 300
extends_documentation_fragment: [unhang, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Undo the last change
  state_restore:
    id: latest

- name: Roll back to the state before the driver was changed
  state_restore:
    id: 20261120T070000Z-gpu_driver

- name: Undo what a run has changed
  state_restore:
    run: 20261120T070000Z-0123456789
"""

RETURN = r"""
rolled_back:
  description: States that were, or would be, rolled back, newest first.
  returned: success
  type: list
  elements: dict
  sample: [{id: 20261120T070000Z-gpu_driver, role: gpu_driver, status: finished, run: a,
    begun: "2026-11-20T07:00:00Z"}]
left:
  description: States that remain, and can be rolled back later, oldest first.
  returned: success
  type: list
  elements: dict
  sample: []
known:
  description: False if the node has no state of O(run), restored or not, as after a reinstallation.
  returned: success
  type: bool
  sample: true
files:
  description: Files that were restored, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/nccl.conf]
packages:
  description: Packages that were restored, or would be.
  returned: success
  type: list
  elements: dict
  sample: [{name: nvidia-driver, action: downgrade, before: 535.309.01-1, after: 535.261.03-1}]
running:
  description: Values of the running system that were restored, or would be.
  returned: success
  type: list
  elements: dict
  sample: [{kind: sysctl, name: kernel.numa_balancing, before: "0", after: "1"}]
boot:
  description: Changes to the boot configuration, or those that would be made.
  returned: success
  type: list
  elements: dict
  sample: []
unheld:
  description: Packages that are no longer on hold.
  returned: success
  type: list
  elements: str
  sample: ["nvidia-driver:amd64"]
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: str
  sample: []
lines:
  description: All changes, one line each.
  returned: success
  type: list
  elements: str
  sample: ["file /etc/nccl.conf: as it was"]
untouched:
  description: True if nothing was changed because a later run has changed the same, or a package
    cannot be restored.
  returned: failure
  type: bool
  sample: true
waits_for:
  description: Kernel that must run before packages of the running one can be removed; the same call
    completes the rollback then. Usually none.
  returned: success
  type: str
  sample: null
reboot_needed:
  description: True if a driver, a kernel, a boot entry or a parameter that a boot has read was
    restored, so that what runs may differ from what is installed.
  returned: success
  type: bool
  sample: false
before:
  description: State of each file that changes; none for a file that did not exist.
  returned: success
  type: dict
  sample: {/etc/nccl.conf: {mode: "0644", size_bytes: 20}}
after:
  description: The values after the change.
  returned: success
  type: dict
  sample: {/etc/nccl.conf: null}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import Saved
from ansible.module_utils.unhang_node.change.config.masking import masked_diff
from ansible.module_utils.unhang_node.change.journal.acting import enter
from ansible.module_utils.unhang_node.change.journal.node_lock import read_boot_id
from ansible.module_utils.unhang_node.change.journal.saved_states import read_states, state_line
from ansible.module_utils.unhang_node.change.package.values import Locked
from ansible.module_utils.unhang_node.change.rollback.chosen_states import NotTouched, newest_state
from ansible.module_utils.unhang_node.change.rollback.restore import (
    NOTHING,
    RollbackPlan,
    RollbackResult,
    apply_restore,
    needs_reboot,
    plan_restore,
    preview_others,
)
from ansible.module_utils.unhang_node.change.rollback.running_values import shown_name

OPTIONS = {
    "fencing": {"type": "int", "default": 0},
    "id": {"type": "str"},
    "run": {"type": "str", "default": ""},
    "through": {"type": "bool", "default": False},
    "lock_timeout_s": {"type": "int", "default": 300},
    "packages": {"type": "list", "elements": "str", "default": []},
    "rootfs": {"type": "path", "default": "/"},
}
NO_PLAN = RollbackPlan()


def load_pynvml() -> Any:
    """Imported only if modes of GPUs were changed."""
    from ansible.module_utils import pynvml

    return pynvml


def apply(module: AnsibleModule) -> tuple[RollbackPlan, RollbackResult]:
    """(RollbackPlan, RollbackResult); changes nothing in check mode. Raises OSError, ValueError,
    Locked."""
    rootfs, state_id, lock_timeout_s, run = (
        module.params[name] for name in ("rootfs", "id", "lock_timeout_s", "run")
    )
    if state_id == "latest":
        state_id = newest_state(read_states(rootfs))
        if state_id is None:
            return NO_PLAN, NOTHING
    packages, through = module.params["packages"], module.params["through"]
    plan = plan_restore(rootfs, state_id, load_pynvml, packages, run, through)
    if not plan.states:
        return plan, NOTHING
    if module.check_mode:
        return plan, preview_others(rootfs, plan, lock_timeout_s)
    return plan, apply_restore(rootfs, plan, lock_timeout_s, load_pynvml)


def report_lines(plan: RollbackPlan, result: RollbackResult) -> list[str]:
    """The restored values, or those that would be restored, a line each."""
    lines = [f"state {state_line(state)}" for state in plan.states]
    lines += [f"no longer on hold: {name}" for name in plan.unhold]
    lines += [
        f"running, {shown_name(row.kind, row.name)}: {row.before} to {row.after}"
        for row in plan.running
    ]
    lines += [f"boot, {row['what']}: {row['before']} to {row['after']}" for row in result.boot]
    if result.waits_for:
        lines.append(
            f"the rest waits until kernel {result.waits_for} runs: packages of the running one"
            " cannot go; boot the node, then roll back again"
        )
    lines += [
        f"package {row['name']}: {row['action']}, {row['before'] or 'not installed'} to"
        f" {row['after'] or 'not installed'}"
        for row in result.packages
    ]
    lines += [f"file {path}: made anew for the kernels that are there" for path in result.menus]
    kept = [
        (path, saved)
        for path, (_now, saved) in sorted(plan.files.items())
        if path not in result.menus
    ]
    lines += [f"file {path}: {'as it was' if saved else 'gone again'}" for path, saved in kept]
    lines += [f"{row.name} reads its files again" for row in plan.reread]
    return (
        lines
        + [f"on hold again: {name}" for name in plan.hold]
        + [f"look at {line}" for line in [*plan.manual, *result.manual]]
        + [f"leaves state {state['id']} of run {state['run']}" for state in plan.left]
    )


def row_of_state(state: dict[str, Any]) -> dict[str, Any]:
    """A saved state in the form of the result."""
    return {name: state[name] for name in ("id", "role", "run", "status", "begun")}


def row_of(saved: Saved | None) -> dict[str, Any] | None:
    """A file in the form of the result."""
    return saved and {
        "mode": f"{saved['mode']:04o}",
        "size_bytes": len(saved["text"].encode("utf-8", "surrogateescape")),
    }


def differences(plan: RollbackPlan) -> list[dict[str, Any]]:
    """The differences for --diff."""
    files = [
        masked_diff(now["text"] if now else None, saved["text"] if saved else None, path)
        for path, (now, saved) in sorted(plan.files.items())
    ]
    for row in plan.running:
        what = shown_name(row.kind, row.name)
        files.append(
            {
                "before": f"{row.before}\n",
                "after": f"{row.after}\n",
                "before_header": what,
                "after_header": what,
            }
        )
    if not plan.unhold and not plan.hold:
        return files
    holds = {
        "before": "".join(f"{name}\n" for name in plan.unhold),
        "after": "".join(f"{name}\n" for name in plan.hold),
    }
    return [dict(holds, before_header="holds", after_header="holds"), *files]


def main() -> None:
    """Plans, acts unless in check mode, answers."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        mutually_exclusive=[("id", "run")],
        required_one_of=[("id", "run")],
    )
    enter(module)
    try:
        plan, result = apply(module)
    except NotTouched as problem:
        module.fail_json(msg=str(problem), untouched=True)
    except (OSError, ValueError, Locked) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(
        changed=bool(plan.states),
        rolled_back=[row_of_state(state) for state in plan.states],
        left=[row_of_state(state) for state in plan.left],
        known=plan.known,
        files=sorted(plan.files),
        packages=result.packages,
        running=[dict(row._asdict()) for row in plan.running],
        boot=result.boot,
        unheld=plan.unhold,
        needs_manual_action=[*plan.manual, *result.manual],
        lines=report_lines(plan, result),
        waits_for=result.waits_for,
        reboot_needed=needs_reboot(plan, result, read_boot_id(module.params["rootfs"])),
        before={path: row_of(now) for path, (now, _saved) in plan.files.items()},
        after={path: row_of(saved) for path, (_now, saved) in plan.files.items()},
        diff=differences(plan),
    )


if __name__ == "__main__":
    main()
