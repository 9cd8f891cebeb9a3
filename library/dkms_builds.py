#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: lists what DKMS has built, and why a build failed. Implementation:
module_utils/unhang_node/change/boot/dkms_builds.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dkms_builds
short_description: List the kernel modules that DKMS has built, and the log line of a failed build
version_added: "0.1.0"
description:
  - Reads DKMS's folders and the logs of failed builds. Runs and changes nothing.
options:
  module:
    description: Name of the module, or a pattern of names.
    type: str
    default: "*"
  version:
    description: Version that must be built; any version by default.
    type: str
  kernel:
    description: Release of the kernel for which RV(why_not) is computed.
    type: str
    required: true
extends_documentation_fragment: [unhang.reads, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Check whether the driver was built for the kernel that boots next
  dkms_builds:
    module: nvidia*
    version: 535.261.03
    kernel: 6.1.0-50-amd64
  register: built
"""

RETURN = r"""
builds:
  description: All builds of these modules, with kernel, state (added, built, installed, failed)
    and, for a failed build, its log and line.
  returned: success
  type: list
  elements: dict
  sample: [{module: nvidia-current, version: 535.261.03, kernel: 6.1.0-50-amd64, state: installed,
    log: null, number: null, line: null}]
why_not:
  description: Why the kernel lacks the module, in one line; empty if it has the module.
  returned: success
  type: str
  sample: ""
"""

import fnmatch

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.base.root import Root
from ansible.module_utils.unhang_node.change.boot.dkms_builds import read_builds, why_not_built

OPTIONS = {
    "module": {"type": "str", "default": "*"},
    "version": {"type": "str"},
    "kernel": {"type": "str", "required": True},
    "rootfs": {"type": "path", "default": "/"},
}


def main() -> None:
    """Reads, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    pattern, version, kernel = (module.params[name] for name in ("module", "version", "kernel"))
    try:
        builds = read_builds(Root([module.params["rootfs"]]))
    except OSError as problem:
        module.fail_json(msg=f"{problem.filename}: {problem.strerror}")
    named = [build._asdict() for build in builds if fnmatch.fnmatchcase(build.module, pattern)]
    module.exit_json(
        changed=False, builds=named, why_not=why_not_built(builds, pattern, kernel, version)
    )


if __name__ == "__main__":
    main()
