#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: holds packages at their versions, and unholds only those that it held.
Implementation: module_utils/unhang_node/change/package/pin.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_pin
short_description: Hold driver, kernel, NCCL or OFED packages at their installed versions
version_added: "0.1.0"
description:
  - Holds every installed package of the groups named, pins each at its version and keeps unattended
    upgrades off it.
  - With apt these are a hold in dpkg's selections, V(/etc/apt/preferences.d/unhang-package-hold)
    with a priority above 1000, and an entry on the
    blacklist of unattended-upgrades. With dnf it is an entry of its version lock.
  - Holds and pins are saved under V(/var/lib/unhang) before anything is changed. For a group that
    is no longer named, exactly these holds are released;
    holds and locks of others are kept.
  - Installs, upgrades and removes nothing.
options:
  groups:
    description:
      - Groups of packages. V(driver) also holds the fabric manager, nscq and IMEX, because they
        need the driver's version.
      - None unholds everything.
    type: list
    elements: str
    choices: [driver, kernel, nccl, ofed]
    default: []
  driver_version:
    description: Version that the driver must have to be held, such as V(535.261.03). Any other
      version is refused, because a hold would keep the wrong one.
    type: str
  changes:
    description:
      - The changes that M(package_change) returned in check mode. The preview then uses the future
        packages.
      - Refused outside check mode, where packages are read from the node.
    type: list
    elements: dict
    default: []
  lock_timeout_s:
    description: Seconds to wait while another process has the package manager's lock.
    type: int
    default: 300
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Hold driver and kernel
  package_pin:
    groups: [driver, kernel]
    driver_version: 535.261.03

- name: Unhold everything
  package_pin:
    groups: []
"""

RETURN = r"""
before:
  description: Packages of the groups with version and hold, before the change.
  returned: success
  type: list
  elements: dict
  sample: [{name: "nvidia-driver:amd64", version: 535.261.03-1, held: false}]
after:
  description: The same packages after the change, or as they would be.
  returned: success
  type: list
  elements: dict
  sample: [{name: "nvidia-driver:amd64", version: 535.261.03-1, held: true}]
held:
  description: Packages that this call held, or would hold.
  returned: success
  type: list
  elements: str
  sample: ["nvidia-driver:amd64"]
unheld:
  description: Packages that this call unheld, or would unhold.
  returned: success
  type: list
  elements: str
  sample: []
needs_manual_action:
  description: What a person has to do.
  returned: success
  type: list
  elements: str
  sample: []
half_configured:
  description: Packages that dpkg has not configured. They are not changed.
  returned: success
  type: list
  elements: str
  sample: []
manager:
  description: V(dpkg) or V(rpm).
  returned: success
  type: str
  sample: dpkg
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import shown
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, enter
from ansible.module_utils.unhang_node.change.package.held_groups import GROUPS
from ansible.module_utils.unhang_node.change.package.pin import (
    Holds,
    apply_plan,
    check_held,
    plan_holds,
    rows_of,
    save_before,
)
from ansible.module_utils.unhang_node.change.package.values import HoldPlan

OPTIONS = {
    "groups": {"type": "list", "elements": "str", "choices": list(GROUPS), "default": []},
    "driver_version": {"type": "str"},
    "changes": {"type": "list", "elements": "dict", "default": []},
    "lock_timeout_s": {"type": "int", "default": 300},
    **ON_ROOTFS,
}


def apply(module: AnsibleModule) -> Holds:
    """Makes the changes unless in check mode, and returns the held packages. Raises OSError,
    ValueError."""
    rootfs, groups = module.params["rootfs"], module.params["groups"]
    if module.params["changes"] and not module.check_mode:
        raise ValueError(
            "changes is for check mode alone, and this call acts; leave it out, for packages are"
            " read from the node"
        )
    holds = plan_holds(rootfs, groups, module.params["driver_version"], module.params["changes"])
    if not module.check_mode:
        save_before(rootfs, module.params["state_id"], holds.plan)
        apply_plan(rootfs, holds.plan, module.params["lock_timeout_s"])
        missing = check_held(rootfs, groups)
        if missing:
            raise ValueError(f"these packages are not held now: {', '.join(missing)}")
    return holds


def differences(plan: HoldPlan, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The differences for --diff: holds as a list of names, then each file."""
    held = sorted(row["name"] for row in rows if row["held"])
    after = sorted((set(held) | set(plan.hold)) - set(plan.unhold))
    texts = {
        "before": "\n".join(sorted(set(held) | set(plan.unhold))) + "\n",
        "after": "\n".join(after) + "\n",
    }
    files = [
        {
            "before": shown(before or ""),
            "after": shown(text or ""),
            "before_header": path,
            "after_header": path,
        }
        for path, (before, text) in sorted(plan.texts.items())
    ]
    return (
        [dict(texts, before_header="holds", after_header="holds")]
        if plan.hold or plan.unhold
        else []
    ) + files


def main() -> None:
    """Plans, acts unless in check mode, reads back, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    try:
        holds = apply(module)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    rows = rows_of(holds.database, module.params["groups"])
    module.exit_json(
        changed=bool(holds.plan.hold or holds.plan.unhold or holds.plan.texts),
        manager=holds.manager,
        before=rows,
        after=[dict(row, held=True) for row in rows],
        held=holds.plan.hold,
        unheld=holds.plan.unhold,
        needs_manual_action=holds.plan.needs_manual_action,
        half_configured=list(holds.database.unfinished),
        diff=differences(holds.plan, rows),
    )


if __name__ == "__main__":
    main()
