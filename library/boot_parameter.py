#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: sets parameters of the kernel's command line. Implementation:
module_utils/unhang_node/change/boot/parameters.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_parameter
short_description: Put parameters on the kernel's command line for the next boots
version_added: "0.1.0"
description:
  - On a node with C(update-grub), writes V(/etc/default/grub.d/zz-unhang-NAME.cfg), regenerates
    GRUB's menu and reads it back; if that fails, the file is
    restored. On a node with C(grubby), C(grubby) changes every entry.
  - Does not reboot. RV(pending_reboot) says whether the parameters wait for a reboot.
  - In a container, or with another boot loader, it changes nothing and reports that in
    RV(needs_manual_action).
options:
  name:
    description: Purpose of the parameters; part of the file's name.
    type: str
    required: true
  parameters:
    description: Parameters such as V(iommu=pt). Needed with O(state=present).
    type: list
    elements: str
  state:
    description: Whether the parameters are set, or those that this module added are removed.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Set the IOMMU to pass-through for the host's own devices
  boot_parameter:
    name: iommu
    parameters: [iommu=pt]
"""

RETURN = r"""
before:
  description: The values that change, before the change.
  returned: success
  type: dict
  sample: {}
after:
  description: The values after the change, or as they would be.
  returned: success
  type: dict
  sample: {}
files:
  description: Files that were changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/default/grub.d/zz-unhang-iommu.cfg]
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
pending_reboot:
  description: True when the next boot has the parameters and the running kernel does not.
  returned: success
  type: bool
  sample: true
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.boot import parameters as run
from ansible.module_utils.unhang_node.change.config.own_files import FilePlan, module_result
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, enter

OPTIONS = {
    "name": {"type": "str", "required": True},
    "parameters": {"type": "list", "elements": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **ON_ROOTFS,
}


def by_grub(
    module: AnsibleModule, rootfs: str, name: str, parameters: list[str] | None
) -> dict[str, Any]:
    """The result on nodes where GRUB's menu is generated. parameters: None to remove unhang's."""
    plan = (
        run.plan_without_grub(rootfs, name)
        if parameters is None
        else run.plan_grub(rootfs, name, parameters)
    )
    # An interrupted run may have written the file but not the menu.
    stale = (
        rootfs == "/"
        and parameters is not None
        and (run.missing_in_menu(rootfs, parameters) or 0) > 0
    )
    if not module.check_mode and (plan.texts or stale):
        run.write_grub(rootfs, name, plan, parameters is None, module.params["state_id"])
        lacking = (
            run.missing_in_menu(rootfs, parameters)
            if parameters is not None and rootfs == "/"
            else None
        )
        if lacking:
            raise ValueError(
                f"GRUB's menu has {lacking} without {' '.join(parameters or ())} after update-grub"
            )
    return module_result(
        plan,
        (
            [
                (
                    "GRUB's menu",
                    "without " + " ".join(parameters or ()),
                    "with " + " ".join(parameters or ()),
                )
            ]
            if stale
            else []
        ),
    )


def by_grubby(
    module: AnsibleModule, rootfs: str, name: str, parameters: list[str] | None
) -> dict[str, Any]:
    """The result on nodes where grubby changes the entries."""
    missing = run.missing_in_grubby(parameters) if parameters is not None else []
    gone = run.given_to_grubby(rootfs, name) if parameters is None else []
    if not module.check_mode and missing:
        run.add_by_grubby(rootfs, name, missing, module.params["state_id"])
    if not module.check_mode and gone:
        run.remove_by_grubby(rootfs, name, gone, module.params["state_id"])
    rows = [
        ("kernel command line", "without " + parameter, "with " + parameter)
        for parameter in missing
    ]
    return module_result(
        FilePlan(),
        rows
        + [
            ("kernel command line", "with " + parameter, "without " + parameter)
            for parameter in gone
        ],
    )


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        required_if=[("state", "present", ["parameters"])],
    )
    enter(module)
    rootfs, name = module.params["rootfs"], module.params["name"]
    parameters = module.params["parameters"] if module.params["state"] == "present" else None
    try:
        run.check_parameters(parameters or ())
        method, why = run.method_of(rootfs)
        if method is None:
            answer = module_result(FilePlan(manual=[why] if parameters is not None else []))
        else:
            answer = (
                by_grubby(module, rootfs, name, parameters)
                if method == "grubby" and rootfs == "/"
                else by_grub(module, rootfs, name, parameters)
            )
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(
        pending_reboot=method is not None
        and parameters is not None
        and rootfs == "/"
        and not run.is_running_with(parameters),
        **answer,
    )


if __name__ == "__main__":
    main()
