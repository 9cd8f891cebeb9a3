#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: writes settings into one of the files from which jobs get them. Implementation:
module_utils/unhang_node/change/config."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_conf
short_description: Put settings for NCCL and torch into a file that jobs read
version_added: "0.1.0"
description:
  - Writes V(/etc/nccl.conf), or the file of another launch path of jobs, with exactly the given
    settings.
  - In V(/etc/nccl.conf) and V(/etc/environment) the settings are one marked block, at the place
    that wins. Every other line is kept unchanged and
    reported. In all other formats the whole file belongs to this module, and a file that somebody
    else wrote is refused.
  - Values are written in the form that NCCL reads, without quotes and without blanks around the
    equals sign.
  - A file is replaced atomically.
options:
  path:
    description: The file.
    type: path
    default: /etc/nccl.conf
  format:
    description:
      - The reader of the file, which decides its format. V(nccl_conf) by NCCL itself,
        V(environment) by PAM, V(shell) by login shells, V(systemd) as a
        drop-in of a unit,
        V(task_prolog) by Slurm, which takes the C(export) lines that it prints, V(enroot) in
        enroot's environ.d, V(apptainer) by login shells for
        Apptainer's containers, V(env_file) as a plain list for pods and for C(docker --env-file).
    type: str
    choices: [nccl_conf, environment, shell, systemd, task_prolog, enroot, apptainer, env_file]
    default: nccl_conf
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
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
seealso:
  - module: gpu_node_info
"""

EXAMPLES = r"""
- name: Name the network interface for NCCL
  nccl_conf:
    settings:
      NCCL_SOCKET_IFNAME: =bond0
      NCCL_IB_HCA: =mlx5_0:1,mlx5_1:1

- name: Switch the flight recorder on for Slurm's tasks
  nccl_conf:
    path: /etc/slurm/unhang-task-prolog
    format: task_prolog
    settings:
      TORCH_NCCL_TRACE_BUFFER_SIZE: 2000

- name: Remove unhang's settings
  nccl_conf:
    settings: {}
"""

RETURN = r"""
before:
  description: This module's settings in the file before; with O(files), by path.
  returned: success
  type: dict
  sample: {NCCL_SOCKET_IFNAME: eth0}
after:
  description: This module's settings in the file now, or as they would be; with O(files), by path.
  returned: success
  type: dict
  sample: {NCCL_SOCKET_IFNAME: =bond0}
hand_written:
  description: Lines of V(/etc/nccl.conf) or V(/etc/environment) that somebody else wrote. They are
    kept.
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
  returned: O(files) is not set
  type: str
  sample: /etc/nccl.conf
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import (
    place_of,
    read_text_or_none,
    shown,
    write_text,
)
from ansible.module_utils.unhang_node.change.config.masking import (
    mask_urls,
    mask_value,
    masked_diff,
)
from ansible.module_utils.unhang_node.change.config.setting_files import (
    BLOCKS,
    FORMATS,
    hand_written,
    own_settings,
    settled_text,
)
from ansible.module_utils.unhang_node.change.config.shared_files import why_shared
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, enter
from ansible.module_utils.unhang_node.change.journal.saved_states import keep_files

FILE = {
    "path": {"type": "path", "required": True},
    "format": {"type": "str", "choices": list(FORMATS), "required": True},
    "settings": {"type": "dict", "default": {}},
}
OPTIONS = {
    "path": {"type": "path", "default": "/etc/nccl.conf"},
    "format": {"type": "str", "choices": list(FORMATS), "default": "nccl_conf"},
    "settings": {"type": "dict", "default": {}},
    "files": {"type": "list", "elements": "dict", "options": FILE},
    "note": {"type": "str", "default": ""},
    **ON_ROOTFS,
}


def plan_file(module: AnsibleModule, wanted: dict[str, Any]) -> dict[str, Any]:
    """The planned content of one file. Raises ValueError, OSError."""
    settings = {name: str(value) for name, value in wanted["settings"].items()}
    why = why_shared(module.params["rootfs"], wanted["path"])
    if why:
        raise ValueError(why)
    place = place_of(module.params["rootfs"], wanted["path"])
    before = read_text_or_none(place)
    after = settled_text(before, wanted["format"], settings, module.params["note"])
    # any value in /etc/environment may be a secret
    hide = mask_urls if wanted["format"] == "nccl_conf" else mask_value
    others = hand_written(after or "") if wanted["format"] in BLOCKS else []
    return {
        "path": wanted["path"],
        "place": place,
        "mode": 0o755 if wanted["format"] == "task_prolog" else 0o644,
        "texts": (before, after),
        "before": own_settings(before, wanted["format"]),
        "after": settings,
        "hand_written": [{"line": number, "text": hide(shown(line))} for number, line in others],
    }


def module_result(plans: list[dict[str, Any]], several: bool) -> dict[str, Any]:
    """What the module returns."""
    diff = [
        masked_diff(*plan["texts"], plan["path"])
        for plan in plans
        if not several or plan["texts"][0] != plan["texts"][1]
    ]
    changed = any(plan["texts"][0] != plan["texts"][1] for plan in plans)
    if several:
        by_path = {key: {plan["path"]: plan[key] for plan in plans} for key in ("before", "after")}
        hand = [dict(row, path=plan["path"]) for plan in plans for row in plan["hand_written"]]
        return dict(by_path, changed=changed, hand_written=hand, diff=diff)
    return dict(
        {key: plans[0][key] for key in ("path", "before", "after", "hand_written")},
        changed=changed,
        diff=diff[0],
    )


def main() -> None:
    """Plans all files, then writes those that differ, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    several, path = module.params["files"], None
    plans = []
    try:
        for wanted in several if several is not None else [module.params]:
            path = wanted["path"]
            plans.append(plan_file(module, wanted))
        due = (
            []
            if module.check_mode
            else [plan for plan in plans if plan["texts"][0] != plan["texts"][1]]
        )
        keep_files(
            module.params["rootfs"], module.params["state_id"], [plan["path"] for plan in due]
        )
        for plan in due:
            path = plan["path"]
            write_text(plan["place"], plan["texts"][1], plan["mode"])
    except (OSError, ValueError) as problem:
        module.fail_json(msg=f"{path}: {problem}")
    module.exit_json(**module_result(plans, several is not None))


if __name__ == "__main__":
    main()
