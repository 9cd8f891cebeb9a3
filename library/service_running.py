#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: enables and starts a service without a reload of systemd. Implementation:
module_utils/unhang_node/change/host/service.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_running
short_description: Have a systemd service run now and at every boot, or start at boot alone, without
  a daemon-reload
version_added: "0.1.0"
description:
  - Like M(ansible.builtin.systemd_service) with enabled and started, but without its reload of
    systemd, which makes running containers lose their GPUs.
  - A missing service is no failure; RV(needs_manual_action) reports it.
options:
  name:
    description: Name of the unit, such as V(nvidia-persistenced.service).
    type: str
    required: true
  boot_link:
    description:
      - Only makes or removes the link with which C(multi-user.target) starts the service at boot,
        and starts and stops nothing.
      - V(present) makes it, also for a unit without an install section, V(absent) removes it, that
        of C(graphical.target) too.
    type: str
    choices: [present, absent]
  rootfs:
    description: Root of the tree in which O(boot_link) is made or removed.
    type: path
    default: /
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing]
"""

EXAMPLES = r"""
- name: Keep GPUs initialized while no program uses them
  service_running:
    name: nvidia-persistenced.service

- name: Fabric manager starts with the next boot
  service_running:
    name: nvidia-fabricmanager.service
    boot_link: present
"""

RETURN = r"""
before:
  description: State of the service in systemd, if it changes.
  returned: success
  type: dict
  sample: {nvidia-persistenced.service now: inactive}
after:
  description: The values after the change.
  returned: success
  type: dict
  sample: {nvidia-persistenced.service now: active}
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.base.root import Root
from ansible.module_utils.unhang_node.change.config.own_files import FilePlan, module_result
from ansible.module_utils.unhang_node.change.config.unit_links import read_starters
from ansible.module_utils.unhang_node.change.host import service as run
from ansible.module_utils.unhang_node.change.journal.acting import SAVING, enter
from ansible.module_utils.unhang_node.change.journal.running_values import Change, keep_running

KINDS = {"at boot": "service_at_boot", "now": "service_now"}
OPTIONS = {
    "name": {"type": "str", "required": True},
    "boot_link": {"type": "str", "choices": ["present", "absent"]},
    "rootfs": {"type": "path", "default": "/"},
    **SAVING,
}


def link(module: AnsibleModule) -> None:
    """The link alone. In check mode a unit that a package would bring need not be there yet."""
    name, rootfs = module.params["name"], module.params["rootfs"]
    try:
        before = read_starters(rootfs, name)
        after = run.wanted_starters(before, module.params["boot_link"] == "present")
        why = run.why_not_started(rootfs, name, after)
        if why and not module.check_mode:
            module.fail_json(msg=f"this node has no {name}; install the package that brings it")
        if before != after and not module.check_mode:
            keep_running(
                rootfs,
                module.params["state_id"],
                [Change(kind="started_by", name=name, value=before, wanted=after)],
            )
            run.write_starters(rootfs, name, after)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    effects = [
        (
            f"{name} started at boot by",
            ", ".join(before) or "nothing",
            ", ".join(after) or "nothing",
        )
    ]
    module.exit_json(**module_result(FilePlan(), effects if before != after else []))


def main() -> None:
    """Asks, acts unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    name = module.params["name"]
    if module.params["boot_link"]:
        link(module)
    if run.unit_path(Root(), name) is None:
        module.exit_json(
            **module_result(
                FilePlan(
                    manual=[f"{name} is not on this node: install the package that contains it"]
                )
            )
        )
    try:
        rows = run.plan_service(name)
        if not module.check_mode:
            changes = [
                Change(kind=KINDS[when], name=name, value=run.read_state(name, when), wanted=after)
                for when, _before, after in rows
            ]
            keep_running("/", module.params["state_id"], changes)
            run.apply_service(name, rows)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    why = run.why_not_at_boot("/", name)
    module.exit_json(
        **module_result(
            FilePlan(manual=[why] if why else []),
            [(f"{name} {when}", before, after) for when, before, after in rows],
        )
    )


if __name__ == "__main__":
    main()
