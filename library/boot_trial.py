#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: boots a kernel once on trial, and makes it the default only on request.
Implementation: module_utils/unhang_node/change/boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_trial
short_description: Boot another kernel once on trial, and keep it only when it is confirmed
version_added: "0.1.0"
description:
  - V(prepared) makes the running kernel the default by name, so that a newer kernel that is
    installed next is not booted by default.
  - V(armed) makes only the next boot use the kernel in O(release), and installs a unit that boots
    the old one again unless the trial is confirmed in
    time. The unit needs neither network nor controller.
  - V(confirmed) makes the kernel on trial the default, if it has all GPUs that the node had before.
  - V(cancelled) undoes all of it. A kernel that is still installed is not booted, because the old
    one stays the default by name.
  - V(inspected) returns the current state and changes nothing.
  - Supports GRUB, GRUB with loader entries (Fedora and related systems) and systemd-boot. Refuses
    if the boot loader cannot clear a one-shot entry (the
    trial would be repeated for ever), if there is no boot loader on the disk, and if the kernel
    lacks its initrd or a module that the node needs.
  - Never reboots.
options:
  state:
    description: The desired state of the trial.
    type: str
    choices: [inspected, prepared, armed, confirmed, cancelled]
    default: inspected
  release:
    description: Release of the kernel on trial, as C(uname -r) prints it. Needed for V(armed) and
      V(confirmed).
    type: str
  trial_options:
    description: Kernel parameters while a kernel is on trial.
    type: str
    default: panic=30
  confirm_within_s:
    description: Seconds after the start of the kernel on trial within which it has to be confirmed.
    type: int
    default: 900
  gpus:
    description: Identities (UUID or PCI address) of the node's GPUs, those before the trial for
      V(armed), and the current ones for V(confirmed).
    type: list
    elements: str
    default: []
  modules:
    description: Out-of-tree modules that must exist for O(release), with their names in
      C(/proc/modules).
    type: list
    elements: str
    default: []
  why:
    description: Why a trial is cancelled.
    type: str
    default: ""
  state_id:
    description: Saved state of M(saved_state) in which the data for a rollback is stored. With an
      empty one nothing is stored.
    type: str
    default: ""
extends_documentation_fragment: [unhang, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Keep the running kernel as the default, whatever is installed
  boot_trial:
    state: prepared

- name: Boot the new kernel once
  boot_trial:
    state: armed
    release: 6.1.0-56-amd64
    gpus: [GPU-2f1a6ee1-0000-0000-0000-000000000000]
    modules: [nvidia, nvidia_uvm]

- name: Confirm that it runs with all GPUs
  boot_trial:
    state: confirmed
    release: 6.1.0-56-amd64
    gpus: [GPU-2f1a6ee1-0000-0000-0000-000000000000]
"""

RETURN = r"""
standing:
  description:
    - State of the last trial after this call. V(none), V(prepared), V(armed) (waits for the
      reboot), V(on_trial) (runs and is not confirmed), V(confirmed),
      V(cancelled) or V(fell_back).
  returned: success
  type: str
  sample: on_trial
trial:
  description: The record of the trial.
  returned: success
  type: dict
  sample: {release: 6.1.0-56-amd64, old_release: 6.1.0-55-amd64, confirm_within_s: 900}
why:
  description: Why the trial failed or was cancelled.
  returned: success
  type: str
  sample: 6.1.0-56-amd64 was not confirmed within 900 s after its start
running:
  description: Release of the running kernel.
  returned: success
  type: str
  sample: 6.1.0-56-amd64
loader:
  description: The boot loader, as section kernel of M(gpu_node_info) has it.
  returned: success
  type: dict
  sample: {loader: grub, default_release: 6.1.0-55-amd64, can_clear_one_shot: true}
space:
  description: Free space in V(/boot), and the space that one more kernel needs.
  returned: success
  type: dict
  sample: {free_mib: 412, need_mib: 96}
changes:
  description: The changes of this call, or those that it would make.
  returned: success
  type: list
  elements: dict
  sample: [{what: default boot entry, before: "0", after: gnulinux-6.1.0-55-amd64}]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import STATES
from ansible.module_utils.unhang_node.change.boot import kernels
from ansible.module_utils.unhang_node.change.boot import trial as trials
from ansible.module_utils.unhang_node.change.boot.loader import NotPossible, read_loader
from ansible.module_utils.unhang_node.change.boot.steps import KEEP_FILE, Step
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, enter
from ansible.module_utils.unhang_node.change.journal.saved_states import keep_files
from ansible.module_utils.unhang_node.change.rollback.boot import save_boot

OPTIONS = {
    "state": {
        "type": "str",
        "choices": ["inspected", "prepared", "armed", "confirmed", "cancelled"],
        "default": "inspected",
    },
    "release": {"type": "str"},
    "trial_options": {"type": "str", "default": "panic=30"},
    "confirm_within_s": {"type": "int", "default": 900},
    "gpus": {"type": "list", "elements": "str", "default": []},
    "modules": {"type": "list", "elements": "str", "default": []},
    "why": {"type": "str", "default": ""},
    **ON_ROOTFS,
}


def steps_wanted(options: dict[str, Any]) -> list[Step]:
    """The steps to the requested state. Raises OSError, ValueError."""
    rootfs, state = options["rootfs"], options["state"]
    if state == "prepared":
        return trials.prepare_steps(rootfs, options["trial_options"])
    if state == "armed":
        wanted = trials.Trial(
            release=options["release"],
            trial_options=options["trial_options"],
            confirm_within_s=options["confirm_within_s"],
            gpus=options["gpus"],
            modules=options["modules"],
        )
        return trials.arm_steps(rootfs, wanted)
    if state == "confirmed":
        return trials.confirm_steps(rootfs, options["release"], options["gpus"])
    return trials.cancel_steps(rootfs, options["why"]) if state == "cancelled" else []


def run_steps(options: dict[str, Any], steps: list[Step]) -> None:
    """Saves what is needed to undo the steps, then makes them. Raises OSError, ValueError."""
    if options["state_id"] and steps:
        save_boot(options["rootfs"], f"{STATES}/{options['state_id']}")
        keep_files(
            options["rootfs"],
            options["state_id"],
            [KEEP_FILE] if options["state"] == "confirmed" else [],
        )
    for step in steps:
        step.act()


def returned_values(rootfs: str) -> dict[str, Any]:
    """The values that every call returns. Raises OSError."""
    try:
        loader, why_not = read_loader(rootfs).facts, None
    except (OSError, ValueError) as problem:
        loader, why_not = {}, str(problem)
    try:
        space = kernels.boot_space(rootfs, kernels.running_release(rootfs))
    except (OSError, ValueError) as problem:
        space = {"free_mib": None, "need_mib": None, "unread": str(problem)}
    record, standing = trials.read_record(rootfs), trials.read_standing(rootfs)
    why = (
        trials.why_fell_back(rootfs)
        if standing in ("fell_back", "cancelled")
        else record.get("why")
    )
    known = {key: value for key, value in record.items() if key != "before"}
    running = kernels.running_release(rootfs)
    return {
        "standing": standing,
        "trial": known,
        "why": why,
        "running": running,
        "loader": dict(loader, refused=why_not),
        "space": space,
    }


def main() -> None:
    """Plans, acts unless in check mode, reads back, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        required_if=[("state", "armed", ["release"]), ("state", "confirmed", ["release"])],
    )
    enter(module)
    options = module.params
    try:
        steps = steps_wanted(options)
        if not module.check_mode:
            run_steps(options, steps)
            remaining = [step.what for step in steps_wanted(options)]
            if remaining:
                raise ValueError(
                    f"after everything was done, this is still left to do: {', '.join(remaining)}"
                )
        answer = returned_values(options["rootfs"])
    except NotPossible as problem:
        module.fail_json(msg=str(problem), refused=[str(problem)])
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    changes = [{"what": step.what, "before": step.before, "after": step.after} for step in steps]
    diff = [
        {
            "before_header": row["what"],
            "after_header": row["what"],
            "before": _lines(row["before"]),
            "after": _lines(row["after"]),
        }
        for row in changes
    ]
    module.exit_json(changed=bool(steps), changes=changes, diff=diff, **answer)


def _lines(text: object) -> str:
    text = "" if text is None else str(text)
    return text if not text or text.endswith("\n") else text + "\n"


if __name__ == "__main__":
    main()
