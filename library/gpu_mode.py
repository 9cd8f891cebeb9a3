#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: sets compute and persistence mode of GPUs. Implementation:
module_utils/unhang_node/change/gpu/modes.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_mode
short_description: Set compute mode and persistence mode of a node's GPUs
version_added: "0.1.0"
description:
  - Reads and sets the modes through NVML. Both modes last until the driver is loaded again or the
    node boots.
  - The compute mode is not changed while a process uses the GPU. In that case nothing is changed,
    and every user is listed.
  - On a node without a driver, or whose driver does not answer, nothing is changed, and
    RV(needs_manual_action) reports that.
options:
  compute_mode:
    description: Mode of every GPU. Not changed by default.
    type: str
    choices: [default, exclusive_process, prohibited]
  persistence:
    description: Whether the driver keeps an unused GPU initialised. Not changed by default.
    type: bool
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing]
"""

EXAMPLES = r"""
- name: Let several processes use a GPU
  gpu_mode:
    compute_mode: default
"""

RETURN = r"""
before:
  description: Modes that change, before the change.
  returned: success
  type: dict
  sample: {compute_mode of GPU 0 (GPU-5aa1): exclusive_process}
after:
  description: The values after the change, or as they would be.
  returned: success
  type: dict
  sample: {compute_mode of GPU 0 (GPU-5aa1): default}
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.config.own_files import FilePlan, module_result
from ansible.module_utils.unhang_node.change.gpu import modes as gpu_modes
from ansible.module_utils.unhang_node.change.journal.acting import SAVING, enter
from ansible.module_utils.unhang_node.change.journal.running_values import Change, keep_running

OPTIONS = {
    "compute_mode": {"type": "str", "choices": ["default", "exclusive_process", "prohibited"]},
    "persistence": {"type": "bool"},
    **SAVING,
}


def load_pynvml() -> Any:
    """Imported here, because a node without a driver does not need it."""
    from ansible.module_utils import pynvml

    return pynvml


def apply(module: AnsibleModule, nvml: Any) -> dict[str, Any]:
    """Makes the changes unless in check mode, and returns the result. Raises OSError, ValueError,
    NVMLError."""
    rows = gpu_modes.plan_modes(
        gpu_modes.read_gpus(nvml), module.params["compute_mode"], module.params["persistence"]
    )
    gpu_modes.refuse_in_use(rows)
    if not module.check_mode:
        changes = [
            Change(kind=row.mode, name=row.gpu.uuid, value=row.before, wanted=row.wanted)
            for row in rows
        ]
        keep_running("/", module.params["state_id"], changes)
        gpu_modes.set_modes(nvml, rows)
    return module_result(FilePlan(), gpu_modes.effects_of(rows))


def main() -> None:
    """Reads, sets unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    nvml, why = gpu_modes.open_nvml(load_pynvml)
    if nvml is None:
        module.exit_json(**module_result(FilePlan(manual=[why])))
    try:
        answer = apply(module, nvml)
    except (OSError, ValueError, nvml.NVMLError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
