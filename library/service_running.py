#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module that has a service run, without a reload of systemd; how lies in module_utils/unhang_node/change/host/service.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_running
short_description: Have a systemd service run now and at every boot, without a daemon-reload
version_added: "0.1.0"
description:
  - Like M(ansible.builtin.systemd_service) with enabled and started, but without its reload of systemd, which makes running containers lose their GPUs.
  - A missing service is no failure; RV(needs_manual_action) reports it.
options:
  name:
    description: Name of the unit, such as V(nvidia-persistenced.service).
    type: str
    required: true
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing]
"""

EXAMPLES = r"""
- name: The driver keeps GPUs set up
  service_running:
    name: nvidia-persistenced.service
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
from ansible.module_utils.unhang_node.change.config.own_files import FilePlan, module_result
from ansible.module_utils.unhang_node.change.host import service as run
from ansible.module_utils.unhang_node.change.journal.acting import enter
from ansible.module_utils.unhang_node.change.journal.running_values import Change, keep_running

KINDS = {"at boot": "service_at_boot", "now": "service_now"}
OPTIONS = {"name": {"type": "str", "required": True}, "state_id": {"type": "str", "default": ""}, "fencing": {"type": "int", "default": 0}}


def main() -> None:
    """Asks, acts unless in check mode, answers."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    name = module.params["name"]
    if run.unit_path("/", name) is None:
        module.exit_json(**module_result(FilePlan(manual=[f"{name} is not on this node: install the package that brings it"])))
    try:
        rows = run.plan_service(name)
        if not module.check_mode:
            changes = [Change(kind=KINDS[when], name=name, value=run.read_state(name, when), wanted=after) for when, _before, after in rows]
            keep_running("/", module.params["state_id"], changes)
            run.apply_service(name, rows)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(**module_result(FilePlan(), [(f"{name} {when}", before, after) for when, before, after in rows]))


if __name__ == "__main__":
    main()
