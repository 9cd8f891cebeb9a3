#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module that keeps packages where they are, and lets go of exactly those again; how lies in module_utils/unhang_node/change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_pin
short_description: Keep driver, kernel, NCCL or OFED packages at their installed versions
version_added: "0.2.0"
description:
  - Holds every installed package of the groups named, pins each at its version and keeps unattended upgrades off it.
  - With apt these are a hold in dpkg's selections, V(/etc/apt/preferences.d/unhang-package-hold) with a priority above 1000, and an entry on the
    blacklist of unattended-upgrades. With dnf it is an entry of its version lock.
  - What it set is saved under V(/var/lib/unhang) before anything is changed. A group that is no longer named is let go, and with it exactly what was set;
    holds and locks that somebody else set stay.
  - Installs, upgrades and removes nothing.
options:
  what:
    description:
      - Groups of packages. V(driver) holds the fabric manager, nscq and IMEX too, for they have to be of one version with it.
      - None lets go of everything.
    type: list
    elements: str
    choices: [driver, kernel, nccl, ofed]
    default: []
  driver_version:
    description: Version that the driver must have to be held, such as V(535.261.03). Another one is refused, for to hold it would keep the wrong one.
    type: str
  lock_timeout_s:
    description: Seconds to wait while another process has the package manager's lock.
    type: int
    default: 300
extends_documentation_fragment: [unhang, unhang.state_id, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Driver and kernel stay where they are
  package_pin:
    what: [driver, kernel]
    driver_version: 535.261.03

- name: Let go of everything that was held
  package_pin:
    what: []
"""

RETURN = r"""
before:
  description: Packages of the groups with version and hold, before.
  returned: success
  type: list
  elements: dict
  sample: [{name: "nvidia-driver:amd64", version: 535.261.03-1, held: false}]
after:
  description: The same, now, or as they would be.
  returned: success
  type: list
  elements: dict
  sample: [{name: "nvidia-driver:amd64", version: 535.261.03-1, held: true}]
held:
  description: Packages whose hold was set in this call, or would be.
  returned: success
  type: list
  elements: str
  sample: ["nvidia-driver:amd64"]
lifted:
  description: Packages whose hold was taken off in this call, or would be.
  returned: success
  type: list
  elements: str
  sample: []
left:
  description: What a person has to look at.
  returned: success
  type: list
  elements: str
  sample: []
half_configured:
  description: Packages that were not installed to the end. They are not touched.
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

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.files import shown
from ansible.module_utils.unhang_node.change.package.held_groups import GROUPS
from ansible.module_utils.unhang_node.change.package.pin import Holds, apply_plan, check_held, plan_holds, rows_of, save_before

OPTIONS = {
    "what": {"type": "list", "elements": "str", "choices": list(GROUPS), "default": []},
    "driver_version": {"type": "str"},
    "lock_timeout_s": {"type": "int", "default": 300},
    "state_id": {"type": "str", "default": ""},
    "rootfs": {"type": "path", "default": "/"},
}


def apply(module: AnsibleModule) -> Holds:
    """What is held, with everything done unless in check mode. Raises OSError, ValueError."""
    rootfs, what = module.params["rootfs"], module.params["what"]
    holds = plan_holds(rootfs, what, module.params["driver_version"])
    if not module.check_mode:
        save_before(rootfs, module.params["state_id"], holds.plan)
        apply_plan(rootfs, holds.plan, module.params["lock_timeout_s"])
        missing = check_held(rootfs, what)
        if missing:
            raise ValueError("expected these to be held now, found that they are not: {}".format(", ".join(missing)))
    return holds


def differences(plan, rows):
    """What --diff shows: holds as a list of names, then each file."""
    held = sorted(row["name"] for row in rows if row["held"])
    after = sorted((set(held) | set(plan.hold)) - set(plan.unhold))
    shown_holds = {"before": "\n".join(sorted(set(held) | set(plan.unhold))) + "\n", "after": "\n".join(after) + "\n"}
    files = [
        {"before": shown(before or ""), "after": shown(text or ""), "before_header": path, "after_header": path}
        for path, (before, text) in sorted(plan.texts.items())
    ]
    return ([dict(shown_holds, before_header="holds", after_header="holds")] if plan.hold or plan.unhold else []) + files


def main():
    """Plans, acts unless in check mode, reads back, answers."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        holds = apply(module)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    rows = rows_of(holds.database, module.params["what"])
    module.exit_json(
        changed=bool(holds.plan.hold or holds.plan.unhold or holds.plan.texts),
        manager=holds.manager,
        before=rows,
        after=[dict(row, held=True) for row in rows],
        held=holds.plan.hold,
        lifted=holds.plan.unhold,
        left=holds.plan.needs_manual_action,
        half_configured=list(holds.database.unfinished),
        diff=differences(holds.plan, rows),
    )


if __name__ == "__main__":
    main()
