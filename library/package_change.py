#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: changes packages so that a rollback is possible. Implementation:
module_utils/unhang_node/change/package."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_change
short_description: Install, upgrade, downgrade or remove packages so that they can be rolled back
version_added: "0.1.0"
description:
  - Lets apt simulate the request first, and refuses it if the simulation differs from the request;
    the refusal lists the versions on offer.
  - Fetches every new package before it touches anything, and keeps every old one in the saved
    state, rebuilt from its installed files where no archive
    offers it any more.
  - Waits for the locks of dpkg and apt no longer than O(lock_timeout_s), and names their holder.
  - Runs apt in a systemd unit of its own (V(unhang-packages.service)), so that a lost connection
    does not kill dpkg. The next run waits for it.
  - Reads back the installed packages. Refuses while packages are not configured, or configures them
    with O(repair).
  - On nodes with rpm it does the same with dnf 4, with the limits in docs/packages.md.
options:
  install:
    description: Packages with their versions, in apt's form. An empty version means the one that
      apt prefers.
    type: dict
    default: {}
  remove:
    description: Packages to remove.
    type: list
    elements: str
    default: []
  remove_sources:
    description: Patterns of source packages. Their installed packages are removed, except those in
      O(install) and their dependencies.
    type: list
    elements: str
    default: []
  allow_remove:
    description: Patterns of names that may be removed because the request conflicts with them. Any
      other removal is refused.
    type: list
    elements: str
    default: []
  state_id:
    description: Saved state that keeps the old packages, as M(saved_state) returns it. Needed for a
      change, unless in check mode or with
      O(allow_no_rollback).
    type: str
    default: ""
  allow_no_rollback:
    description: Continue if an old package can neither be fetched nor rebuilt.
    type: bool
    default: false
  allow_downgrade:
    description: Allow downgrades.
    type: bool
    default: false
  change_held:
    description: Change packages that unhang itself holds and pins (M(package_pin)). If somebody
      else holds a package, the request is refused.
    type: bool
    default: false
  repair:
    description: Configure packages that dpkg left half configured.
    type: bool
    default: false
  pin:
    description:
      - apt pins that belong to the request. The simulation uses them, and they are written before
        anything is installed.
      - Refused on nodes with rpm, where M(package_pin) locks versions.
    type: dict
    suboptions:
      file:
        description: File of V(/etc/apt/preferences.d) that holds them.
        type: str
        required: true
      stanzas:
        description: The pins. Without any, the file is removed.
        type: list
        elements: dict
        default: []
        suboptions:
          package:
            description: Name, pattern of names, or V(src:NAME) for all packages of a source.
            type: str
            required: true
          version:
            description: Version, or a pattern of versions.
            type: str
            required: true
  modules:
    description:
      - Module streams of dnf that must be enabled, such as V(535-dkms) of V(nvidia-driver); another
        stream of the module is reset first. In check mode, and
        while packages are fetched, this is done on a copy of dnf's state. The earlier stream is
        kept in O(state_id).
      - Refused on nodes with dpkg.
    type: dict
    default: {}
  expect:
    description: Packages with the version, or a pattern of it, that they must have afterwards.
      Checked in the simulation and after the change.
    type: dict
    default: {}
  update_cache:
    description: Fetch the lists of packages first. In check mode this is done on a copy.
    type: bool
    default: true
  lock_timeout_s:
    description: Seconds to wait for another process that has the package manager's locks, and for
      an earlier change that still runs.
    type: int
    default: 300
  fetch_timeout_s:
    description: Seconds that fetching lists, or packages, may take.
    type: int
    default: 600
  deadline_s:
    description: Seconds to wait for apt. After that it is not killed; it continues in its unit.
    type: int
    default: 3600
  root_free_min_mib:
    description: Free space that has to remain on V(/), V(/usr) and V(/var) after the change, in
      MiB.
    type: int
    default: 500
  boot_free_min_mib:
    description: Free space that has to remain on V(/boot) after the change, in MiB.
    type: int
    default: 20
  rootfs:
    description: Folder to use as the node's V(/), such as a mounted image.
    type: path
    default: /
extends_documentation_fragment: [unhang.fencing]
attributes:
  check_mode:
    description: Returns what would change; apt works on copies, and nothing on the node is changed.
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
    install: {nvidia-driver: 535.261.03-1, nvidia-kernel-dkms: 535.261.03-1,
      libnvidia-ml1: 535.261.03-1}
    remove_sources: ["nvidia-graphics-drivers-*"]
    pin:
      file: /etc/apt/preferences.d/unhang-driver
      stanzas:
        - {package: "src:nvidia-graphics-drivers", version: 535.261.03-1}
    expect: {libnvidia-ml1: 535.261.03-*}
    allow_downgrade: true
    state_id: "{{ state.id }}"

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
  description: The changes, or those that would be made.
  returned: always
  type: list
  elements: dict
  sample: [{name: nvidia-driver, action: upgrade, before: 535.261.03-1, after: 535.309.01-1}]
refused:
  description: The reasons why nothing was done, one line each. The node is unchanged.
  returned: on refusal
  type: list
  elements: str
  sample: ["nvidia-driver 525.147.05-1 is not on offer; on offer are: 535.309.01-1, 535.261.03-1"]
stopped_at:
  description: The step at which a change failed. V(fetching) has changed nothing; after V(applying)
    run again with O(repair), or roll back.
  returned: on failure
  type: str
  sample: applying
audit:
  description: Output of C(dpkg --audit) after a failure.
  returned: on failure
  type: list
  elements: str
  sample: []
offered:
  description: Versions of the requested packages in the node's repositories, newest first.
  returned: always
  type: dict
  sample: {nvidia-driver: [{version: 535.309.01-1, origin: "http://mirror/debian bookworm/non-free
    amd64"}]}
fetched:
  description: Package files that were fetched into the saved state, old and new.
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
  description: Packages that were not configured before the change.
  returned: always
  type: list
  elements: str
  sample: []
after:
  description: Versions of O(install) and O(expect) as they are now; in check mode, as they would
    be.
  returned: success
  type: dict
  sample: {nvidia-driver: 535.309.01-1}
pin:
  description: The file of pins before and after the change.
  returned: when O(pin) is given
  type: dict
  sample: {file: /etc/apt/preferences.d/unhang-driver, before: null, after: "Package: ..."}
streams:
  description: Module streams of dnf that were changed, or would be.
  returned: when one did
  type: dict
  sample: {nvidia-driver: {before: 535-dkms, after: 580-dkms}}
waited_for:
  description: The processes that the module waited for, and how long.
  returned: always
  type: list
  elements: str
  sample: []
warnings_of_update:
  description: Errors while the lists were fetched. The earlier lists are used then.
  returned: always
  type: list
  elements: str
  sample: []
log:
  description: The end of apt's output.
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.journal.acting import enter
from ansible.module_utils.unhang_node.change.package.answer import change_packages

STANZA = {
    "package": {"type": "str", "required": True},
    "version": {"type": "str", "required": True},
}
PIN = {
    "file": {"type": "str", "required": True},
    "stanzas": {"type": "list", "elements": "dict", "default": [], "options": STANZA},
}
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
    "lock_timeout_s": {"type": "int", "default": 300},
    "fetch_timeout_s": {"type": "int", "default": 600},
    "deadline_s": {"type": "int", "default": 3600},
    "root_free_min_mib": {"type": "int", "default": 500},
    "boot_free_min_mib": {"type": "int", "default": 20},
    "rootfs": {"type": "path", "default": "/"},
}


def main() -> None:
    """Changes packages, or only simulates, and returns the result."""
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
