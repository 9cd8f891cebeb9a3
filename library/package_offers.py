#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: lists which versions of packages a node's repositories offer. Implementation:
module_utils/unhang_node/change/package."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_offers
short_description: List the versions of packages that a node's repositories offer, and what is
  installed
version_added: "0.1.0"
description:
  - Reads the lists of packages that apt has fetched. With O(update_cache) it first fetches new
    lists into a copy; the node's own lists are not changed.
  - On nodes with rpm it uses dnf, which fetches old lists again by itself.
  - Changes nothing.
options:
  names:
    description: Names of packages, or patterns of names such as V(nvidia-*).
    type: list
    elements: str
    required: true
  modules:
    description: Modules of dnf whose streams are returned. Offers are those of all streams, enabled
      or not.
    type: list
    elements: str
    default: []
  update_cache:
    description: Fetch the lists first, into a copy.
    type: bool
    default: false
  rootfs:
    description: Folder to use as the node's V(/), such as a mounted image.
    type: path
    default: /
extends_documentation_fragment: [unhang.reads]
"""

EXAMPLES = r"""
- name: List the drivers on offer
  package_offers:
    names: ["nvidia-driver*", "nvidia-tesla-*-driver"]
    update_cache: true
"""

RETURN = r"""
offers:
  description: Versions by package, newest first.
  returned: success
  type: dict
  sample: {nvidia-driver: [{version: 535.309.01-1, origin: "http://mirror/debian bookworm/non-free
    amd64"}]}
installed:
  description: The installed versions.
  returned: success
  type: dict
  sample: {nvidia-driver: {version: 535.261.03-1, architecture: amd64, held: false,
    state: installed, source: nvidia-graphics-drivers}}
warnings_of_update:
  description: Errors while the lists were fetched. The earlier lists are used then.
  returned: success
  type: list
  elements: str
  sample: []
streams:
  description: Module streams in the repositories of a node with rpm, by module; modules without
    streams are omitted.
  returned: success
  type: dict
  sample: {nvidia-driver: {streams: [535-dkms, 580-dkms], default: 580-dkms, enabled: 535-dkms}}
manager:
  description: V(dpkg) or V(rpm).
  returned: success
  type: str
  sample: dpkg
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.package.managers import backend_of

OPTIONS = {
    "names": {"type": "list", "elements": "str", "required": True},
    "modules": {"type": "list", "elements": "str", "default": []},
    "update_cache": {"type": "bool", "default": False},
    "rootfs": {"type": "path", "default": "/"},
}


def main() -> None:
    """Reads, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        asked = module.params
        found = backend_of(asked["rootfs"]).read_offers(
            asked["rootfs"], asked["names"], asked["update_cache"], asked["modules"]
        )
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    for line in found.warnings_of_update:
        module.warn(line)
    module.exit_json(changed=False, **found._asdict())


if __name__ == "__main__":
    main()
