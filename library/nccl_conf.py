#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The Ansible module that puts settings into one of the files that jobs get them from; texts are worked out in module_utils/unhang_node/change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_conf
short_description: Put settings for NCCL and torch into a file that jobs read
version_added: "0.2.0"
description:
  - Writes V(/etc/nccl.conf), or the file of another way in which jobs are launched, so that it carries exactly the settings given.
  - In V(/etc/nccl.conf) and V(/etc/environment) the settings stand in one marked block, placed so that they win. Every other line keeps its bytes and
    is reported. All other formats are files of this module alone, and one that somebody else wrote is refused.
  - Values are written as NCCL reads them, without quotes and without blanks around the sign.
  - A file is replaced whole or not at all.
options:
  path:
    description: The file.
    type: path
    default: /etc/nccl.conf
  format:
    description:
      - How the file is read. V(nccl_conf) by NCCL itself, V(environment) by PAM, V(shell) by login shells, V(systemd) as a drop-in of a unit,
        V(task_prolog) by Slurm, which takes the C(export) lines that it prints, V(enroot) in enroot's environ.d, V(apptainer) by login shells for
        Apptainer's containers, V(env_file) as a plain list for pods and for C(docker --env-file).
    type: str
    choices: [nccl_conf, environment, shell, systemd, task_prolog, enroot, apptainer, env_file]
    default: nccl_conf
  settings:
    description: Names with their values. None takes away what this module wrote before.
    type: dict
    default: {}
  note:
    description: One line for whoever reads the file, such as the profile and the day on which it ends.
    type: str
    default: ""
  rootfs:
    description: Folder that stands for the node's V(/), such as a mounted image.
    type: path
    default: /
attributes:
  check_mode:
    description: Says what would change and writes nothing.
    support: full
  diff_mode:
    description: Shows the file before and after.
    support: full
seealso:
  - module: gpu_node_info
author:
  - the unhang authors
"""

EXAMPLES = r"""
- name: NCCL takes the interface that is there
  nccl_conf:
    settings:
      NCCL_SOCKET_IFNAME: =bond0
      NCCL_IB_HCA: =mlx5_0:1,mlx5_1:1

- name: Slurm's tasks keep a flight recorder
  nccl_conf:
    path: /etc/slurm/unhang-task-prolog
    format: task_prolog
    settings:
      TORCH_NCCL_TRACE_BUFFER_SIZE: 2000

- name: Take away what was written
  nccl_conf:
    settings: {}
"""

RETURN = r"""
before:
  description: Settings of this module's own that stood in the file.
  returned: success
  type: dict
  sample: {NCCL_SOCKET_IFNAME: eth0}
after:
  description: Those that stand there now, or would.
  returned: success
  type: dict
  sample: {NCCL_SOCKET_IFNAME: =bond0}
hand_written:
  description: Lines of V(/etc/nccl.conf) or V(/etc/environment) that somebody else wrote. They are kept.
  returned: success
  type: list
  elements: dict
  contains:
    line:
      description: Its number in the new file.
      type: int
      returned: always
    text:
      description: The line.
      type: str
      returned: always
  sample: [{line: 7, text: NCCL_IB_TIMEOUT=22}]
path:
  description: The file.
  returned: success
  type: str
  sample: /etc/nccl.conf
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.files import place_of, read_text_or_none, shown, write_text
from ansible.module_utils.unhang_node.change.setting_files import BLOCKS, FORMATS, hand_written, own_settings, settled_text

OPTIONS = {
    "path": {"type": "path", "default": "/etc/nccl.conf"},
    "format": {"type": "str", "choices": list(FORMATS), "default": "nccl_conf"},
    "settings": {"type": "dict", "default": {}},
    "note": {"type": "str", "default": ""},
    "rootfs": {"type": "path", "default": "/"},
}


def main():
    """Reads the file, writes it when it differs, answers."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    path, form = module.params["path"], module.params["format"]
    settings = {name: str(value) for name, value in module.params["settings"].items()}
    try:
        place = place_of(module.params["rootfs"], path)
        before = read_text_or_none(place)
        after = settled_text(before, form, settings, module.params["note"])
        changed = before != after
        if changed and not module.check_mode:
            write_text(place, after, 0o755 if form == "task_prolog" else 0o644)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=f"{path}: {problem}")
    others = hand_written(after or "") if form in BLOCKS else []
    module.exit_json(
        changed=changed,
        path=path,
        before=own_settings(before, form),
        after=settings,
        hand_written=[{"line": number, "text": shown(line)} for number, line in others],
        diff={"before": shown(before or ""), "after": shown(after or ""), "before_header": path, "after_header": path},
    )


if __name__ == "__main__":
    main()
