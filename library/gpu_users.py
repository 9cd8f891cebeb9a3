#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module that tells who uses a node's GPUs and has the known services let go of them; how lies in module_utils/unhang_node/change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_users
short_description: Tell who uses the GPUs, stop and start the services among them, exchange the driver's kernel modules
version_added: "0.2.0"
description:
  - Lists every process that has a V(/dev/nvidia*) open, whatever NVML lists, the known services that run (exporters, DCGM, MPS, a display server,
    persistenced, IMEX, fabric manager), and modules of the kernel that need the driver.
  - Stops such services in the order in which they depend on the driver, and starts them again the other way round, fabric manager first. What it stopped is
    saved in V(/var/lib/unhang/gpu_users.json) before it stops anything, so that another run can start it.
  - Exchanges the driver's kernel modules, or resets all GPUs and starts fabric manager, in a systemd unit of its own. Refused while anybody but those
    services uses a GPU.
  - Never runs C(systemctl daemon-reload), which makes running containers lose their GPUs.
options:
  state:
    description: What is to be. V(listed) changes nothing.
    type: str
    choices: [listed, stopped, started, reloaded, reset]
    default: listed
  services:
    description: With V(stopped), which ones. Those that are not known to use GPUs are refused.
    type: list
    elements: str
    default: []
  tolerate_failures:
    description: With V(started), a service that does not start is told in RV(left). Before the reboot that completes a change of driver, some cannot.
    type: bool
    default: false
  commands:
    description: With V(reloaded) and V(reset), the lines to run, as the plans of the roles gpu_driver and fabric_manager have them.
    type: list
    elements: str
    default: []
  expected_version:
    description: With V(reloaded), the version that has to be loaded afterwards. Where it is loaded already, nothing is done.
    type: str
  wait_s:
    description: Seconds that stopped services may take to let go of the GPUs.
    type: int
    default: 60
  deadline_s:
    description: Seconds that the exchange of the modules may take.
    type: int
    default: 600
attributes:
  check_mode:
    description: Says what would be stopped, started or run, and does none of it.
    support: full
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Who uses the GPUs
  gpu_users:
  register: users

- name: Let go of them
  gpu_users:
    state: stopped
    services: [nvidia-dcgm.service, nvidia-persistenced.service]

- name: Start what was stopped
  gpu_users:
    state: started
"""

RETURN = r"""
users:
  description: Who uses the GPUs, as it was when the module began.
  returned: success
  type: dict
  contains:
    processes:
      description: Processes with a device open; service is the known unit that they belong to, or none.
      type: list
      elements: dict
    services:
      description: Known services that are installed.
      type: list
      elements: dict
    modules_held:
      description: Modules of the driver that more than other modules hold.
      type: list
      elements: dict
    foreign_modules:
      description: Modules that need the driver and that nobody here knows how to load again.
      type: list
      elements: str
    unload:
      description: Modules in the order in which they would be unloaded.
      type: list
      elements: str
  sample: {processes: [{pid: 4711, user: alice, command: python3, devices: [/dev/nvidia0], service: null}], services: [], modules_held: [], unload: [nvidia]}
units:
  description: Units that were stopped or started, or would be.
  returned: success
  type: list
  elements: str
  sample: [nvidia-dcgm.service, nvidia-persistenced.service]
waiting:
  description: Units that an earlier run stopped and that nobody has started since.
  returned: success
  type: list
  elements: str
  sample: []
left:
  description: Services that did not start, and why.
  returned: success
  type: list
  elements: str
  sample: []
commands:
  description: What was run to exchange the modules, or would be.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.gpu import users as change
from ansible.module_utils.unhang_node.change.gpu.services import SERVICES, stop_order
from ansible.module_utils.unhang_node.root import Root
from ansible.module_utils.unhang_node.section import Unread
from ansible.module_utils.unhang_node.sections.driver import read_loaded

OPTIONS = {
    "state": {"type": "str", "choices": ["listed", "stopped", "started", "reloaded", "reset"], "default": "listed"},
    "services": {"type": "list", "elements": "str", "default": []},
    "tolerate_failures": {"type": "bool", "default": False},
    "commands": {"type": "list", "elements": "str", "default": []},
    "expected_version": {"type": "str"},
    "wait_s": {"type": "int", "default": 60},
    "deadline_s": {"type": "int", "default": 600},
}


def list_users(module, _users):
    """Nothing to do."""
    return {}


def stop(module, users):
    """Units that run now and were named."""
    unknown = sorted(set(module.params["services"]) - set(SERVICES))
    if unknown:
        raise ValueError("expected services that are known to use GPUs, found {}; known are {}".format(", ".join(unknown), ", ".join(SERVICES)))
    active = {row["unit"] for row in users["services"] if row["active"]}
    units = stop_order(active & set(module.params["services"]))
    if units and not module.check_mode:
        change.stop_services(units, module.params["wait_s"])
    return {"changed": bool(units), "units": units}


def start(module, _users):
    """Units that an earlier call stopped."""
    units = change.services.start_order(change.stopped_before())
    left = []
    if units and not module.check_mode:
        units, left = change.start_services(module.params["tolerate_failures"])
    return {"changed": bool(units), "units": units, "left": left}


def exchange(module, users):
    """The modules, unless the right one is loaded."""
    wanted, commands = module.params["expected_version"], module.params["commands"]
    loaded = read_loaded(Root(), Unread())["version"]
    if wanted is None or loaded == wanted:
        return {"commands": []}
    run_commands(module, users)
    if not module.check_mode:
        now = read_loaded(Root(), Unread())["version"]
        if now != wanted:
            raise ValueError(f"expected driver {wanted} loaded after the exchange, found {now}; reboot the node")
    return {"changed": True, "commands": commands}


def reset(module, users):
    """All GPUs."""
    commands = module.params["commands"]
    if commands:
        run_commands(module, users)
    return {"changed": bool(commands), "commands": commands}


def run_commands(module, users):
    """Unless in check mode. Raises ValueError while somebody uses a GPU."""
    problems = ["process {} ({}) of {}".format(row["pid"], row["command"], row["user"]) for row in users["processes"] if row["service"] is None]
    problems += ["the kernel module " + name for name in users["foreign_modules"]]
    if problems:
        raise ValueError("expected GPUs that nobody uses, found {}; let them end, or reboot the node".format(", ".join(problems[:8])))
    if not module.check_mode:
        change.reload_modules(module.params["commands"], module.params["deadline_s"])


ACTS = {"listed": list_users, "stopped": stop, "started": start, "reloaded": exchange, "reset": reset}


def main():
    """Looks, acts unless in check mode, answers."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    answer = {"changed": False, "units": [], "left": [], "commands": []}
    try:
        waiting = change.stopped_before()
        users = change.read_gpu_users()
        answer.update(ACTS[module.params["state"]](module, users))
    except (OSError, ValueError) as problem:
        where = f"{problem.filename}: " if isinstance(problem, OSError) and problem.filename else ""
        module.fail_json(msg=where + (getattr(problem, "strerror", None) or str(problem)))
    module.exit_json(users=users, waiting=waiting, **answer)


if __name__ == "__main__":
    main()
