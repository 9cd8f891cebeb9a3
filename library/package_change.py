#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module that changes packages so that a rollback is possible; the work is done by module_utils/unhang_node/change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_change
short_description: Install, upgrade, downgrade or remove packages so that they can be rolled back
version_added: "0.1.0"
description:
  - Lets apt simulate the request first, and refuses it when the simulation is not what was asked for; the refusal lists what is on offer.
  - Fetches every new package before it touches anything, and keeps every old one in the saved state, rebuilt from its installed files where no archive
    offers it any more.
  - Waits for the locks of dpkg and apt no longer than O(lock_timeout_s), and names who has them.
  - Runs apt in a systemd unit of its own (V(unhang-packages.service)), so that a lost connection does not kill dpkg. The next run waits for it.
  - Reads back what is installed. Packages that are not configured are refused, or configured with O(repair).
  - On nodes of rpm it does the same with dnf 4, less what docs/packages.md names.
options:
  install:
    description: Packages with the version that each has to have, as apt writes it. An empty version takes the one that apt prefers.
    type: dict
    default: {}
  remove:
    description: Packages to remove.
    type: list
    elements: str
    default: []
  remove_sources:
    description: Patterns of source packages. What is installed of them is removed, apart from what O(install) names and what that needs.
    type: list
    elements: str
    default: []
  allow_remove:
    description: Patterns of names that may be removed because the request conflicts with them. Any other removal is refused.
    type: list
    elements: str
    default: []
  state_id:
    description: Saved state that keeps the old packages, as M(saved_state) returns it. Needed for a change, unless in check mode or with O(allow_no_rollback).
    type: str
    default: ""
  allow_no_rollback:
    description: Go on where an old package can neither be fetched nor rebuilt.
    type: bool
    default: false
  allow_downgrade:
    description: Allow downgrades.
    type: bool
    default: false
  change_held:
    description: Change packages that unhang itself holds and pins (M(package_pin)). Where somebody else holds one, the request is refused.
    type: bool
    default: false
  repair:
    description: Configure packages that dpkg left half configured.
    type: bool
    default: false
  pin:
    description:
      - Pins of apt that belong to the request. They count in the simulation and are written before anything is installed.
      - Refused on nodes of rpm, where M(package_pin) locks versions.
    type: dict
    suboptions:
      file:
        description: File of V(/etc/apt/preferences.d) that holds them.
        type: str
        required: true
      stanzas:
        description: One pin each. None takes the file away.
        type: list
        elements: dict
        default: []
        suboptions:
          package:
            description: Name, pattern of names, or V(src:NAME) for all that is built of a source.
            type: str
            required: true
          version:
            description: Version, or a pattern of versions.
            type: str
            required: true
  modules:
    description:
      - Module streams of dnf that have to be enabled, V(nvidia-driver) by V(535-dkms) say; another stream of the module is reset first. In check mode, and
        while packages are fetched, this is done to a copy of dnf's state. What was enabled is kept in O(state_id).
      - Refused on nodes of dpkg.
    type: dict
    default: {}
  expect:
    description: Packages with the version, or a pattern of it, that has to be there after. Checked in the simulation, and read back.
    type: dict
    default: {}
  update_cache:
    description: Fetch the lists of packages first. In check mode this is done to a copy.
    type: bool
    default: true
  recommends:
    description: Install what the packages recommend, too.
    type: bool
    default: false
  simulate_only:
    description: Return what would be done and do none of it, without check mode.
    type: bool
    default: false
  lock_timeout_s:
    description: Seconds to wait for another process that has the package manager's locks, and for an earlier change that is still at work.
    type: int
    default: 300
  fetch_timeout_s:
    description: Seconds that fetching lists, or packages, may take.
    type: int
    default: 600
  deadline_s:
    description: Seconds to wait for apt. It is not killed afterwards; it goes on in its unit.
    type: int
    default: 3600
  root_free_min_mib:
    description: Free space that has to remain on V(/), V(/usr) and V(/var) after the change, in MiB.
    type: int
    default: 500
  boot_free_min_mib:
    description: Free space that has to remain on V(/boot) after the change, in MiB.
    type: int
    default: 20
  rootfs:
    description: Folder that stands for the node's V(/), such as a mounted image.
    type: path
    default: /
attributes:
  check_mode:
    description: Returns what would change; apt works on copies, and nothing of the node is written.
    support: full
  diff_mode:
    description: Shows versions, module streams and the file of pins before and after.
    support: full
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Install one driver, its whole source pinned
  package_change:
    install: {nvidia-driver: 535.261.03-1, nvidia-kernel-dkms: 535.261.03-1, libnvidia-ml1: 535.261.03-1}
    remove_sources: ["nvidia-graphics-drivers-*"]
    pin:
      file: /etc/apt/preferences.d/unhang-driver
      stanzas:
        - {package: "src:nvidia-graphics-drivers", version: 535.261.03-1}
    expect: {libnvidia-ml1: 535.261.03-*}
    allow_downgrade: true
    state_id: "{{ state.id }}"

- name: Simulate
  package_change:
    install: {nvidia-tesla-535-driver: ""}
    allow_remove: ["*nvidia*"]
    simulate_only: true

- name: Install another branch on a node of rpm, where branches are module streams
  package_change:
    modules: {nvidia-driver: 580-dkms}
    install: {nvidia-driver: "3:580.95.05-1.el9", kmod-nvidia-latest-dkms: "3:580.95.05-1.el9"}
    state_id: "{{ state.id }}"

- name: Configure packages that dpkg left half configured
  package_change:
    repair: true
"""

RETURN = r"""
changes:
  description: What changed, or would.
  returned: always
  type: list
  elements: dict
  sample: [{name: nvidia-driver, action: upgrade, before: 535.261.03-1, after: 535.309.01-1}]
refused:
  description: Why nothing was done, one line each. The node is as it was.
  returned: on refusal
  type: list
  elements: str
  sample: ["expected nvidia-driver 525.147.05-1, found on offer: 535.309.01-1, 535.261.03-1"]
stopped_at:
  description: How far a change came that failed. V(fetching) touched nothing; after V(applying) run again with O(repair), or roll back.
  returned: on failure
  type: str
  sample: applying
audit:
  description: What dpkg --audit prints after a failure.
  returned: on failure
  type: list
  elements: str
  sample: []
offered:
  description: Versions that the node's repositories have of the packages asked for, newest first.
  returned: always
  type: dict
  sample: {nvidia-driver: [{version: 535.309.01-1, origin: "http://mirror/debian bookworm/non-free amd64"}]}
fetched:
  description: Files that were fetched into the saved state, old and new.
  returned: success
  type: list
  elements: str
  sample: [nvidia-driver_535.261.03-1_amd64.deb]
repacked:
  description: Old packages that no repository has any more, rebuilt from their installed files.
  returned: success
  type: list
  elements: str
  sample: []
half_configured:
  description: Packages that were not configured before.
  returned: always
  type: list
  elements: str
  sample: []
after:
  description: Versions of O(install) and O(expect) as they are now; in check mode, as they would be.
  returned: success
  type: dict
  sample: {nvidia-driver: 535.309.01-1}
pin:
  description: The file of pins before and after.
  returned: when O(pin) is given
  type: dict
  sample: {file: /etc/apt/preferences.d/unhang-driver, before: null, after: "Package: ..."}
streams:
  description: Module streams of dnf that changed, or would.
  returned: when one did
  type: dict
  sample: {nvidia-driver: {before: 535-dkms, after: 580-dkms}}
waited_for:
  description: Who was waited for, and how long.
  returned: always
  type: list
  elements: str
  sample: []
warnings_of_update:
  description: What went wrong while the lists were fetched. The lists from before count then.
  returned: always
  type: list
  elements: str
  sample: []
log:
  description: The last of what apt printed.
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.journal.acting import enter
from ansible.module_utils.unhang_node.change.package.answer import change_packages

STANZA = {"package": {"type": "str", "required": True}, "version": {"type": "str", "required": True}}
PIN = {"file": {"type": "str", "required": True}, "stanzas": {"type": "list", "elements": "dict", "default": [], "options": STANZA}}
OPTIONS = {
    "install": {"type": "dict", "default": {}},
    "remove": {"type": "list", "elements": "str", "default": []},
    "remove_sources": {"type": "list", "elements": "str", "default": []},
    "allow_remove": {"type": "list", "elements": "str", "default": []},
    "state_id": {"type": "str", "default": ""},
    "fencing": {"type": "int", "default": 0},
    "allow_no_rollback": {"type": "bool", "default": False},
    "allow_downgrade": {"type": "bool", "default": False},
    "change_held": {"type": "bool", "default": False},
    "repair": {"type": "bool", "default": False},
    "pin": {"type": "dict", "options": PIN},
    "modules": {"type": "dict", "default": {}},
    "expect": {"type": "dict", "default": {}},
    "update_cache": {"type": "bool", "default": True},
    "recommends": {"type": "bool", "default": False},
    "simulate_only": {"type": "bool", "default": False},
    "lock_timeout_s": {"type": "int", "default": 300},
    "fetch_timeout_s": {"type": "int", "default": 600},
    "deadline_s": {"type": "int", "default": 3600},
    "root_free_min_mib": {"type": "int", "default": 500},
    "boot_free_min_mib": {"type": "int", "default": 20},
    "rootfs": {"type": "path", "default": "/"},
}


def main() -> None:
    """Changes, or only simulates, and answers."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    answer = change_packages(module.params, module.check_mode)
    for line in answer.get("warnings_of_update", ()):
        module.warn(line)
    if answer.pop("failed"):
        module.fail_json(**answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
