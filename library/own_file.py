#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: manages configuration files of unhang's own, and its block in two files of
others. Implementation: module_utils/unhang_node/change/config."""

from __future__ import annotations

DOCUMENTATION = r"""
module: own_file
short_description: Write or remove a configuration file, or a block of one, that belongs to unhang
version_added: "0.1.0"
description:
  - Writes O(lines) or O(settings) below a line that names the writer. A file without that line
    belongs to somebody else, and is refused.
  - With O(format=nccl_conf) and O(format=environment) the settings are one marked block, at the
    place that wins, of a file that may belong to others. Every other line is kept unchanged and
    reported.
  - A file is replaced atomically.
options:
  path:
    description: Path of the file on the node.
    type: path
  format:
    description:
      - The reader of the file, which decides its format. V(lines) takes O(lines), all others
        O(settings).
      - V(nccl_conf) is read by NCCL itself, V(environment) by PAM, V(shell) by login shells,
        V(systemd) as a drop-in of a unit, V(task_prolog) by Slurm, which takes the C(export) lines
        that it prints, V(enroot) in enroot's environ.d, V(apptainer) by login shells for
        Apptainer's containers, V(env_file) as a plain list for pods and for C(docker --env-file).
    type: str
    choices: [lines, nccl_conf, environment, shell, systemd, task_prolog, enroot, apptainer,
      env_file]
    default: lines
  lines:
    description: Lines of the file. Needed with O(format=lines) and O(state=present).
    type: list
    elements: str
    default: []
  settings:
    description: Names with their values. Without settings, those that this module wrote before are
      removed.
    type: dict
    default: {}
  files:
    description: Several files in one call, instead of O(path), O(format) and O(settings). If one of
      them cannot be written, none is.
    type: list
    elements: dict
    suboptions:
      path:
        description: As O(path).
        type: path
        required: true
      format:
        description: As O(format).
        type: str
        choices: [nccl_conf, environment, shell, systemd, task_prolog, enroot, apptainer, env_file]
        required: true
      settings:
        description: As O(settings).
        type: dict
        default: {}
  note:
    description: One line for readers of the file, such as the profile and the day on which it ends.
    type: str
    default: ""
  comment:
    description: The characters that begin a comment in a file of O(lines).
    type: str
    default: '#'
  state:
    description: Whether the file, or the block, exists.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
seealso:
  - module: gpu_node_info
"""

EXAMPLES = r"""
- name: Keep a user's shared memory after a logout
  own_file:
    path: /etc/systemd/logind.conf.d/zz-unhang.conf
    lines: ['[Login]', RemoveIPC=no]

- name: Name the network interface for NCCL
  own_file:
    path: /etc/nccl.conf
    format: nccl_conf
    settings:
      NCCL_SOCKET_IFNAME: =bond0
      NCCL_IB_HCA: =mlx5_0:1,mlx5_1:1

- name: Switch the flight recorder on for Slurm's tasks
  own_file:
    path: /etc/slurm/unhang-task-prolog
    format: task_prolog
    settings:
      TORCH_NCCL_TRACE_BUFFER_SIZE: 2000
"""

RETURN = r"""
files:
  description: Files that were changed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/logind.conf.d/zz-unhang.conf]
hand_written:
  description: Lines that somebody else wrote into a file with a block. They are kept.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      type: str
      returned: always
    line:
      description: Its number in the new file.
      type: int
      returned: always
    text:
      description: The line.
      type: str
      returned: always
  sample: [{path: /etc/nccl.conf, line: 7, text: NCCL_IB_TIMEOUT=22}]
needs_manual_action:
  description: Always empty.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import shown
from ansible.module_utils.unhang_node.change.config.masking import mask_urls, mask_value
from ansible.module_utils.unhang_node.change.config.own_files import (
    FilePlan,
    changed,
    module_result,
    plan_texts,
    write_plan,
)
from ansible.module_utils.unhang_node.change.config.setting_files import (
    FORMATS,
    hand_written,
    own_text,
    settled_text,
)
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, act

# what is printed of others' lines; any value in /etc/environment may be a secret
HIDE = {"nccl_conf": mask_urls, "environment": mask_value}
SETTINGS = {"type": "dict", "default": {}}
OPTIONS = {
    "path": {"type": "path"},
    "format": {"type": "str", "choices": ["lines", *FORMATS], "default": "lines"},
    "lines": {"type": "list", "elements": "str", "default": []},
    "settings": SETTINGS,
    "files": {
        "type": "list",
        "elements": "dict",
        "options": {
            "path": {"type": "path", "required": True},
            "format": {"type": "str", "choices": list(FORMATS), "required": True},
            "settings": SETTINGS,
        },
    },
    "note": {"type": "str", "default": ""},
    "comment": {"type": "str", "default": "#"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **ON_ROOTFS,
}


def text_after(given: dict[str, Any], file: dict[str, Any], before: str | None) -> str | None:
    """A file's text, None for no file. before: its text now. Raises ValueError."""
    present, form = given["state"] == "present", file["format"]
    if form != "lines":
        settings = {name: str(value) for name, value in file["settings"].items() if present}
        return settled_text(before, form, settings, given["note"])
    if present and not given["lines"]:
        raise ValueError(
            "lines is empty and must have at least one line; state absent removes the file"
        )
    lines = given["lines"] if present else []
    return own_text(before, lines, given["comment"], given["note"])


def apply(module: AnsibleModule) -> dict[str, Any]:
    """Writes the files unless in check mode, and returns the result. Raises OSError, ValueError."""
    given, rootfs = module.params, module.params["rootfs"]
    files = [given] if given["files"] is None else given["files"]
    texts = plan_texts(rootfs, {file["path"]: partial(text_after, given, file) for file in files})
    plan = FilePlan(texts=changed(texts))
    if plan.texts and not module.check_mode:
        write_plan(rootfs, None, plan, False, given["state_id"])
    others = [
        {"path": file["path"], "line": number, "text": HIDE[file["format"]](shown(line))}
        for file in files
        if file["format"] in HIDE
        for number, line in hand_written(texts[file["path"]][1] or "")
    ]
    return dict(module_result(plan), hand_written=others)


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
        mutually_exclusive=[("path", "files")],
        required_one_of=[("path", "files")],
    )
    act(module, apply)


if __name__ == "__main__":
    main()
