#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: looks at the running job of one node; options in, one JSON document out.
Implementation: module_utils/unhang_node/job/look.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job_evidence
short_description: Look at a running training job on one node
version_added: "0.1.0"
description:
  - Reads from outside what the ranks of a job, NCCL's RAS, the GPUs and the kernel show, twice, a
    few seconds apart.
  - Changes nothing and loads nothing into the job.
  - Reads what the user of the connection may read. With root on the node these are the jobs of all
    users.
options:
  slurm_job:
    description: Number of a job of Slurm. Other jobs of the node are left out.
    type: str
  container:
    description: Name or ID of a container, or a namespace such as V(pid:[4026532649]). Processes
      outside of it are left out.
    type: str
  pids:
    description: Processes of the job. The default is every job of the node.
    type: list
    elements: int
    default: []
  gap_s:
    description: Seconds between the two looks.
    type: float
    default: 3.0
  slow:
    description: Look also fifty times in ten seconds at how far each rank is.
    type: bool
    default: false
  without:
    description: Sources that are not asked, such as V(stacks) or V(nvml).
    type: list
    elements: str
    default: []
  py_spy:
    description: Path of py-spy on the node. The default is the one of C(PATH).
    type: path
  kernel_log:
    description: File to read instead of the node's kernel log.
    type: path
extends_documentation_fragment: [unhang.reads]
"""

EXAMPLES = r"""
- name: Look at the job
  job_evidence:
    slurm_job: "4711"
  register: looked
"""

RETURN = r"""
evidence:
  description: The document C(unhang/evidence/1) as one line of JSON, because Ansible would
    otherwise mark each of its values.
  returned: success
  type: str
"""

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.job.look import look

OPTIONS = {
    "slurm_job": {"type": "str"},
    "container": {"type": "str"},
    "pids": {"type": "list", "elements": "int", "default": []},
    "gap_s": {"type": "float", "default": 3.0},
    "slow": {"type": "bool", "default": False},
    "without": {"type": "list", "elements": "str", "default": []},
    "py_spy": {"type": "path"},
    "kernel_log": {"type": "path"},
}


def load_pynvml() -> ModuleType:
    """nvidia-ml-py, which Ansible packs with the module. Raises ImportError if the controller has
    none (the packer treats the import as optional)."""
    from ansible.module_utils import pynvml

    return pynvml


def main() -> None:
    """Looks at the job, and returns the document."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        document = look(module.params, load_pynvml)
    except ValueError as problem:  # an option names something that does not exist
        module.fail_json(msg=str(problem))
    module.exit_json(changed=False, evidence=json.dumps(document, separators=(",", ":")))


if __name__ == "__main__":
    main()
