#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: reads one node; options in, one JSON document out. Implementation:
module_utils/unhang_node/facts/collect.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_node_info
short_description: Read what matters for multi-GPU training from one node
version_added: "0.1.0"
description:
  - Reads driver, CUDA, NCCL, GPUs, interconnect, network, limits, packages and kernel faults in one
    call and changes nothing.
  - Returns only facts. It does not judge them, and it never returns C(ansible_facts).
  - C(probe.status) of each section is one of V(ok), V(absent), V(denied), V(timeout) or V(error). A
    section that could not be read is never empty.
  - Needs Python 3.8 on the node and nothing else. The NVIDIA driver is read through nvidia-ml-py,
    which travels with the module.
  - Root is not needed. Without it, values that only root may read are V(denied).
options:
  gather_subset:
    description:
      - Sections to read, as with M(ansible.builtin.setup).
      - V(all) is every section. A leading C(!) excludes a section, V(!all) excludes all that are
        not named, except V(min).
      - V(min) stands for V(node) and V(kernel), which are read unless V(!min) is given.
      - Sections are V(node), V(kernel), V(driver), V(fabric_manager), V(cuda), V(nccl), V(torch),
        V(gpus), V(interconnect), V(network), V(limits),
        V(packages) and V(faults).
    type: list
    elements: str
    default: [all]
  rootfs:
    description:
      - Folders to use as the node's V(/). With several, a path is read from the first folder that
        has it.
      - Audits a mounted container or a recorded tree instead of the live system.
    type: list
    elements: path
    default: [/]
  procfs:
    description: Folder to use as V(/proc). The default is V(<rootfs>/proc).
    type: path
  sysfs:
    description: Folder to use as V(/sys). The default is V(<rootfs>/sys).
    type: path
  kernel_log:
    description: File to read instead of the node's kernel log.
    type: path
  nvml_recording:
    description: Recording of driver answers to use instead of the node's driver.
    type: path
  torch_environments:
    description:
      - Python environments whose torch, NCCL and cuDNN are read from their files. None of their
        code is run.
      - By default the action plugin sets it from C(unhang_policy.torch.environments).
    type: list
    elements: path
    default: []
  nccl_roots:
    description: More folders to search for libnccl. Folders on network file systems are read only
      if they are named here.
    type: list
    elements: path
    default: []
  hash_libraries:
    description: Whether to return SHA-256 sums of NCCL libraries. Costs 140 ms for one of 250 MB.
    type: bool
    default: false
  p2p_matrix:
    description:
      - What to read from the driver for each pair of GPUs.
      - V(read) checks reads, and the others only where reads are not OK. V(full) checks reads,
        writes, NVLink and atomics of every pair.
    type: str
    choices: [read, full]
    default: read
  silence_s:
    description: Seconds that a single call may take. After that its section has V(timeout) and
      names the call. The default is 4.
    type: float
  deadline_s:
    description: Seconds that one kind of source may take in all. The default is 15.
    type: float
  first_handle_s:
    description:
      - Seconds that the driver may take for its first answers, which are slow where persistence
        mode is off.
      - The default is O(silence_s), or 20 where persistence mode is off.
    type: float
  answer_as:
    description:
      - V(structured) returns the document itself, V(text) the same document as one JSON text.
      - Ansible tags every value of a structured answer, which costs the controller CPU time, so the
        audit uses text.
    type: str
    choices: [structured, text]
    default: structured
attributes:
  check_mode:
    description: Reading is the same in check mode.
    support: full
  diff_mode:
    description: There is never a difference to show.
    support: none
notes:
  - In plays of this project each option can also be a host variable with the prefix C(unhang_),
    such as C(unhang_rootfs).
  - In C(playbooks/audit.yml) the document is written to the run folder, and the task returns a
    one-line summary.
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: Read everything
  gpu_node_info:
  register: node

- name: Read driver and GPUs alone
  gpu_node_info:
    gather_subset: ["!all", driver, gpus]

- name: Read the torch that users train with
  gpu_node_info:
    torch_environments: [/opt/envs/train]

- name: Read a mounted container image instead of this system
  gpu_node_info:
    rootfs: [/mnt/image]
"""

RETURN = r"""
node_facts:
  description:
    - The facts document, schema C(unhang/node-facts/1), described in
      C(tools/unhang/core/schemas/node-facts-1.yaml).
    - A JSON text when O(answer_as=text).
  returned: success
  type: dict
  contains:
    schema:
      description: Always V(unhang/node-facts/1).
      type: str
      returned: always
    collector:
      description: The collector's version, the time, and the duration.
      type: dict
      returned: always
    sections:
      description: One object for each section that was read.
      type: dict
      returned: always
  sample: {schema: unhang/node-facts/1, collector: {version: 0.1.0},
    sections: {node: {probe: {status: ok}, hostname: gpu001}}}
"""

import json
from types import ModuleType

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.facts.collect import collect

OPTIONS = {
    "gather_subset": {"type": "list", "elements": "str", "default": ["all"]},
    "rootfs": {"type": "list", "elements": "path", "default": ["/"]},
    "procfs": {"type": "path"},
    "sysfs": {"type": "path"},
    "kernel_log": {"type": "path"},
    "nvml_recording": {"type": "path"},
    "torch_environments": {"type": "list", "elements": "path", "default": []},
    "nccl_roots": {"type": "list", "elements": "path", "default": []},
    "hash_libraries": {"type": "bool", "default": False},
    "p2p_matrix": {"type": "str", "choices": ["read", "full"], "default": "read"},
    "silence_s": {"type": "float"},
    "deadline_s": {"type": "float"},
    "first_handle_s": {"type": "float"},
    "answer_as": {"type": "str", "choices": ["structured", "text"], "default": "structured"},
}


def load_pynvml() -> ModuleType:
    """nvidia-ml-py, which Ansible packs with the module. Raises ImportError if the controller has
    none (the packer treats the import as optional)."""
    from ansible.module_utils import pynvml

    return pynvml


def main() -> None:
    """Reads the node, and returns the document."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = {
        name: value
        for name, value in module.params.items()
        if value is not None and name != "answer_as"
    }
    options["collected_via"] = "ansible"
    try:
        document = collect(options, load_pynvml)
    except ValueError as problem:  # an option names something that does not exist
        module.fail_json(msg=str(problem))
    as_text = module.params["answer_as"] == "text"
    module.exit_json(
        changed=False,
        node_facts=json.dumps(document, separators=(",", ":")) if as_text else document,
    )


if __name__ == "__main__":
    main()
