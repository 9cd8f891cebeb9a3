#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: stores on a node what was found on it before a change. Implementation:
module_utils/unhang_node/change/journal/baseline.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_baseline
short_description: Store the findings of a node from before a run changed it
version_added: "0.1.0"
description:
  - V(kept) writes O(baseline) to V(/var/lib/unhang/baseline.json), unless there is one already. An
    existing one is of an earlier run that was neither
    proved healthy nor rolled back; later runs are compared with it.
  - V(removed) removes it, once the node is proved healthy or rolled back.
  - Never reports a change, so that a second run of a role changes nothing.
options:
  state:
    description: Whether to keep or to remove a baseline.
    type: str
    choices: [kept, removed]
    default: kept
  baseline:
    description: The output of C(unhang rollout-step begin) for the node. Needed with O(state=kept).
    type: dict
extends_documentation_fragment: [unhang.fencing, unhang.rootfs]
attributes:
  check_mode:
    description: Writes nothing, and returns the baseline that would be in use.
    support: full
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Keep the findings from before the roles change anything
  node_baseline:
    baseline: "{{ found_before }}"
    fencing: "{{ node_change_fencing }}"
  register: before

- name: Remove the baseline of a node that is proved healthy
  node_baseline:
    state: removed
    fencing: "{{ node_change_fencing }}"
"""

RETURN = r"""
baseline:
  description: The baseline in use; none after it was removed.
  returned: success
  type: dict
  sample: {schema: unhang/baseline/1, run: 20261120T070000Z-4c61ba9715, failed: [nvlink-down],
    unknown: [], hardware: {numa_nodes: 2}}
earlier:
  description: True if the baseline is of an earlier run.
  returned: success
  type: bool
  sample: false
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.journal.baseline import (
    read_baseline,
    remove_baseline,
    write_baseline,
)
from ansible.module_utils.unhang_node.change.journal.node_lock import demand_lock

OPTIONS = {
    "state": {"type": "str", "choices": ["kept", "removed"], "default": "kept"},
    "baseline": {"type": "dict"},
    "fencing": {"type": "int", "default": 0},
    "rootfs": {"type": "path", "default": "/"},
}


def apply(module: AnsibleModule) -> dict[str, Any]:
    """Writes or removes the file unless in check mode, and returns the result. Raises OSError,
    ValueError."""
    rootfs = module.params["rootfs"]
    if not module.check_mode:
        demand_lock(rootfs, module.params["fencing"])
    if module.params["state"] == "removed":
        if not module.check_mode:
            remove_baseline(rootfs)
        return {"baseline": None, "earlier": False}
    standing = read_baseline(rootfs)
    if standing is None and not module.check_mode:
        write_baseline(rootfs, module.params["baseline"])
    return {"baseline": standing or module.params["baseline"], "earlier": standing is not None}


def main() -> None:
    """Stores or removes the baseline, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        required_if=[("state", "kept", ("baseline",))],
    )
    try:
        module.exit_json(changed=False, **apply(module))
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))


if __name__ == "__main__":
    main()
