#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module that stops and starts the services that hold GPUs, exchanges the driver's
kernel modules and resets the GPUs; the work is done by module_utils/unhang_node/change/gpu."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_services
short_description: Stop and start the services that hold GPUs, reload the driver's kernel modules,
  reset GPUs
version_added: "0.1.0"
description:
  - Stops known services (exporters, DCGM, MPS, a display server, persistenced, IMEX, fabric
    manager) in the order of their dependencies, and starts them
    again in the opposite order, fabric manager first. The stopped services are saved in
    V(/var/lib/unhang/gpu_users.json) beforehand, so that another run
    can start them.
  - Reloads the driver's kernel modules, or resets all GPUs and starts fabric manager, in a systemd
    unit of its own. The module works out the commands
    from the services and modules of the node; no command comes from the controller. It refuses
    while anything else than these services uses a GPU.
  - What was reset, when and for which faults is kept in V(/var/lib/unhang/gpu_resets.json), so that
    no GPU is reset twice within a day for the same fault.
  - Never runs C(systemctl daemon-reload), which makes running containers lose their GPUs.
options:
  state:
    description:
      - V(stopped) stops the services in O(services); V(started) starts those again that were
        stopped.
      - V(reloaded) loads the kernel modules of O(expected_version). If they are loaded already,
        nothing is done.
      - V(reset) resets all GPUs and starts fabric manager; with O(gpus), it resets these GPUs.
    type: str
    choices: [stopped, started, reloaded, reset]
    required: true
  services:
    description: The services to stop with V(stopped). Unknown services are refused.
    type: list
    elements: str
    default: []
  tolerate_failures:
    description: With V(started), a service that does not start is returned in
      RV(needs_manual_action). Before the reboot that completes a change of driver,
      some cannot start.
    type: bool
    default: false
  expected_version:
    description: With V(reloaded), the version that must be loaded afterwards.
    type: str
  gpus:
    description: With V(reset), the faulty GPUs, each with the faults for which it is reset. If one
      of them needs a boot, none is reset, and the faults are only recorded.
    type: list
    elements: dict
    default: []
    suboptions:
      uuid:
        description: UUID of the GPU.
        type: str
      pci_address:
        description: PCI address of the GPU.
        type: str
      verb:
        description: What the GPU needs.
        type: str
        choices: [reset the GPU, reboot the node]
        required: true
      because:
        description: The faults.
        type: list
        elements: str
        required: true
  whole:
    description: With O(gpus), reset all GPUs of the node together, because the board needs it.
    type: bool
    default: false
extends_documentation_fragment: [unhang.fencing]
attributes:
  check_mode:
    description: Returns what would be stopped, started or run, and changes nothing.
    support: full
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Stop DCGM and persistenced
  gpu_services:
    state: stopped
    services: [nvidia-dcgm.service, nvidia-persistenced.service]

- name: Start the services that were stopped
  gpu_services:
    state: started

- name: Reset one GPU
  gpu_services:
    state: reset
    gpus:
      - {uuid: GPU-00000006-0000-4000-8000-000000000000, pci_address: '0000:1a:00.0', verb: reset
        the GPU, because: [Xid 95]}

- name: Load the installed driver
  gpu_services:
    state: reloaded
    expected_version: 580.95.05
"""

RETURN = r"""
units:
  description: Units that were stopped or started, or would be.
  returned: success
  type: list
  elements: str
  sample: [nvidia-dcgm.service, nvidia-persistenced.service]
needs_manual_action:
  description: Services that did not start, and why.
  returned: success
  type: list
  elements: str
  sample: []
commands:
  description: Commands that reloaded the modules or reset the GPUs, or that would.
  returned: success
  type: list
  elements: str
  sample: [systemctl stop nvidia-persistenced.service, rmmod nvidia, modprobe nvidia,
    systemctl start nvidia-persistenced.service]
"""

import time
from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.base.root import Root
from ansible.module_utils.unhang_node.base.section import Unread
from ansible.module_utils.unhang_node.change.drain.reasons import message_of
from ansible.module_utils.unhang_node.change.gpu import resets, service_changes
from ansible.module_utils.unhang_node.change.gpu.exchange_steps import ExchangeStep
from ansible.module_utils.unhang_node.change.gpu.services import SERVICES, start_order, stop_order
from ansible.module_utils.unhang_node.change.gpu.users import (
    foreign_users,
    read_gpu_users,
    read_stopped,
)
from ansible.module_utils.unhang_node.change.journal.acting import enter
from ansible.module_utils.unhang_node.facts.sections.driver import read_loaded

OPTIONS = {
    "fencing": {"type": "int", "default": 0},
    "state": {
        "type": "str",
        "choices": ["stopped", "started", "reloaded", "reset"],
        "required": True,
    },
    "services": {"type": "list", "elements": "str", "default": []},
    "tolerate_failures": {"type": "bool", "default": False},
    "expected_version": {"type": "str"},
    "gpus": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "uuid": {"type": "str"},
            "pci_address": {"type": "str"},
            "verb": {
                "type": "str",
                "choices": ["reset the GPU", "reboot the node"],
                "required": True,
            },
            "because": {"type": "list", "elements": "str", "required": True},
        },
    },
    "whole": {"type": "bool", "default": False},
}


def stop(module: AnsibleModule, users: dict[str, Any]) -> dict[str, Any]:
    """Stops the running ones of the named units."""
    unknown = sorted(set(module.params["services"]) - set(SERVICES))
    if unknown:
        raise ValueError(
            f"unhang does not know that these services use GPUs: {', '.join(unknown)}; it knows"
            f" {', '.join(SERVICES)}"
        )
    active = {row["unit"] for row in users["services"] if row["active"]}
    units = stop_order(active & set(module.params["services"]))
    if units and not module.check_mode:
        service_changes.stop_services(units)
    return {"changed": bool(units), "units": units}


def start(module: AnsibleModule, _users: dict[str, Any]) -> dict[str, Any]:
    """Starts units that an earlier call stopped."""
    units = start_order(read_stopped())
    if not units or module.check_mode:
        return {"changed": bool(units), "units": units}
    started = service_changes.start_services(module.params["tolerate_failures"])
    return {"changed": True, "units": started.units, "needs_manual_action": started.failures}


def reload(module: AnsibleModule, users: dict[str, Any]) -> dict[str, Any]:
    """Exchanges the kernel modules, unless the right ones are loaded."""
    wanted = module.params["expected_version"]
    if read_loaded(Root(), Unread())["version"] == wanted:
        return {}
    steps = service_changes.plan_reload(users)
    run(module, users, steps)
    if not module.check_mode:
        now = read_loaded(Root(), Unread())["version"]
        if now != wanted:
            raise ValueError(
                f"driver {now} is loaded after the exchange, not {wanted}; reboot the node"
            )
    return {"changed": True, "commands": [step.line() for step in steps]}


def reset(module: AnsibleModule, users: dict[str, Any]) -> dict[str, Any]:
    """Resets all GPUs, or the named ones."""
    gpus = module.params["gpus"]
    uuids = resets.uuids_to_reset(gpus)
    steps = (
        service_changes.plan_reset_of(users, uuids, module.params["whole"])
        if uuids
        else []
        if gpus
        else service_changes.plan_reset(users)
    )
    if gpus and not module.check_mode:
        refuse_users(users, steps)
        resets.refuse_again(gpus, resets.read_records(), time.time())
        resets.record(gpus)
    logged = run(module, users, steps)
    if uuids and not module.check_mode:
        resets.record_end(gpus, logged)
    return {"changed": True, "commands": [step.line() for step in steps]}


def run(module: AnsibleModule, users: dict[str, Any], steps: Sequence[ExchangeStep]) -> list[str]:
    """Makes the steps unless in check mode, and returns their log. Raises ValueError if somebody
    uses a GPU."""
    refuse_users(users, steps)
    return service_changes.run_steps(steps) if steps and not module.check_mode else []


def refuse_users(users: dict[str, Any], steps: Sequence[ExchangeStep]) -> None:
    """Raises ValueError if somebody uses a GPU, and there is anything to do."""
    found = foreign_users(users) if steps else []
    if found:
        raise ValueError(
            f"the GPUs are in use by {', '.join(found[:8])}; let them end, or reboot the node"
        )


STATES = {"stopped": stop, "started": start, "reloaded": reload, "reset": reset}


def main() -> None:
    """Reads the users of the GPUs, acts unless in check mode, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        required_if=[("state", "reloaded", ("expected_version",))],
    )
    enter(module)
    answer: dict[str, Any] = {
        "changed": False,
        "units": [],
        "needs_manual_action": [],
        "commands": [],
    }
    try:
        answer.update(STATES[module.params["state"]](module, read_gpu_users()))
    except (OSError, ValueError) as problem:
        module.fail_json(msg=message_of(problem))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
