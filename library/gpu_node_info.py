#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module that reads one node: options in, one JSON document out. What is read and how lies in module_utils/unhang_node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_node_info
short_description: Read what matters for multi-GPU training from one node
version_added: "0.1.0"
description:
  - Reads driver, CUDA, NCCL, GPUs, interconnect, network, limits, packages and kernel faults in one call and changes nothing.
  - Answers with facts only. It judges nothing, and it never returns C(ansible_facts).
  - Each section says how reading it went in C(probe.status), one of V(ok), V(absent), V(denied), V(timeout) or V(error).
    A section that could not be read is never an empty section.
  - Needs Python 3.8 on the node and nothing else. The NVIDIA driver is asked through nvidia-ml-py, which travels with the module.
  - Root is not needed. What only root may read answers V(denied).
options:
  gather_subset:
    description:
      - Sections to read, as with M(ansible.builtin.setup).
      - V(all) is every section. A leading C(!) leaves one out, V(!all) leaves out all that is not named but V(min).
      - V(min) stands for V(node) and V(kernel), which are read unless V(!min) is said.
      - Sections are V(node), V(kernel), V(driver), V(fabric_manager), V(cuda), V(nccl), V(torch), V(gpus), V(interconnect), V(network), V(limits),
        V(packages) and V(faults).
    type: list
    elements: str
    default: [all]
  rootfs:
    description:
      - Folders that stand for the node's V(/). With several, the first that has a path wins.
      - Audits a mounted container or a recorded tree instead of the live system.
    type: list
    elements: path
    default: [/]
  procfs:
    description: Folder that stands for V(/proc), where it is not V(<rootfs>/proc).
    type: path
  sysfs:
    description: Folder that stands for V(/sys), where it is not V(<rootfs>/sys).
    type: path
  kernel_log:
    description: A file that is read instead of the node's kernel log.
    type: path
  nvml_recording:
    description: A recording of driver answers that is read instead of the node's driver.
    type: path
  torch_environments:
    description:
      - Python environments whose torch, NCCL and cuDNN are read from their files. Nothing of them is run.
      - The action plugin fills it from C(unhang_policy.torch.environments) where the task does not set it.
    type: list
    elements: path
    default: []
  nccl_roots:
    description: Further folders that are searched for libnccl. Folders on network file systems are read only when they are named here.
    type: list
    elements: path
    default: []
  hash_libraries:
    description: Whether to give SHA-256 sums of NCCL libraries. Costs 140 ms for one of 250 MB.
    type: bool
    default: false
  p2p_matrix:
    description:
      - What to ask the driver for each pair of GPUs.
      - V(read) asks for reads, and for the rest only where reads are not OK. V(full) asks for reads, writes, NVLink and atomics of every pair.
    type: str
    choices: [read, full]
    default: read
  silence_s:
    description: Seconds that a single call may take. After that its section says V(timeout) and names the call. 4 by default.
    type: float
  deadline_s:
    description: Seconds that one kind of source may take while it still gets on. 15 by default.
    type: float
  first_handle_s:
    description:
      - Seconds that the driver may take for its first answers, which are slow where persistence mode is off.
      - Left out, O(silence_s), or 20 where persistence mode is off.
    type: float
  answer_as:
    description:
      - V(structured) returns the document itself, V(text) the same document as one JSON text.
      - Ansible tags every value of a structured answer, which costs the controller CPU time, so the audit asks for text.
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
  - In a play of this project each option may also be given as a variable of the host, named C(unhang_) and the option, such as C(unhang_rootfs).
  - Under C(playbooks/audit.yml) the document goes into the run folder, and the task returns a one-line summary.
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
    - The facts document, schema C(unhang/node-facts/1), described in C(tools/unhang/schemas/node-facts-1.yaml).
    - A JSON text when O(answer_as=text).
  returned: success
  type: dict
  contains:
    schema:
      description: Always V(unhang/node-facts/1).
      type: str
      returned: always
    collector:
      description: What read the node, when, and for how long.
      type: dict
      returned: always
    sections:
      description: One object for each section that was read.
      type: dict
      returned: always
  sample: {schema: unhang/node-facts/1, collector: {version: 0.1.0}, sections: {node: {probe: {status: ok}, hostname: gpu001}}}
"""

import json
from types import ModuleType

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.collect import collect

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
    """nvidia-ml-py as Ansible packed it. Raises ImportError where the controller has none (the import is optional to the packer)."""
    from ansible.module_utils import pynvml

    return pynvml


def main() -> None:
    """Reads the node and answers."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = {name: value for name, value in module.params.items() if value is not None and name != "answer_as"}
    options["collected_via"] = "ansible"
    try:
        document = collect(options, load_pynvml)
    except ValueError as problem:  # an option that names what does not exist
        module.fail_json(msg=str(problem))
    as_text = module.params["answer_as"] == "text"
    module.exit_json(changed=False, node_facts=json.dumps(document, separators=(",", ":")) if as_text else document)


if __name__ == "__main__":
    main()
