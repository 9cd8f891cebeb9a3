#!/usr/bin/python
# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: disables environment settings in every system file that sets them.
Implementation: module_utils/unhang_node/change/config."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disabled_setting
short_description: Disable environment settings of a node and keep their lines as comments
version_added: "0.1.0"
description:
  - Searches the files that the audit reads (V(/etc/nccl.conf), V(/etc/environment),
    V(/etc/profile.d), systemd units, Slurm's TaskProlog, enroot)
    for lines that set the given names, and turns each into a comment that keeps the line.
  - Changes a line only if it sets that one name and nothing else. All other lines are returned in
    RV(needs_manual_action) for a person.
  - Saves each line under V(/var/lib/unhang) before it changes a file, so that O(state=restored)
    restores exactly these lines.
  - Runs no daemon-reload and restarts nothing. A setting of a systemd unit stays in force until
    systemd is reloaded or the node boots.
options:
  names:
    description: Names of variables.
    type: list
    elements: str
    default: []
  settings:
    description: Names with values. A line that sets this value is kept.
    type: dict
    default: {}
  owner:
    description: Name of the calling role, under which the lines are saved.
    type: str
    required: true
  state:
    description: Whether the lines are disabled, or the disabled ones restored.
    type: str
    choices: [disabled, restored]
    default: disabled
extends_documentation_fragment: [unhang, unhang.state_id, unhang.fencing, unhang.rootfs]
"""

EXAMPLES = r"""
- name: Disable lines that choose GPUs for every job
  disabled_setting:
    names: [CUDA_VISIBLE_DEVICES]
    owner: gpu_binding

- name: Restore the lines
  disabled_setting:
    owner: gpu_binding
    state: restored
"""

RETURN = r"""
lines:
  description: Lines that this call disabled, or would disable.
  returned: state is disabled
  type: list
  elements: dict
  sample: [{file: /etc/environment, line: 3, text: CUDA_VISIBLE_DEVICES=0}]
needs_manual_action:
  description: What a person has to do by hand.
  returned: success
  type: list
  elements: dict
  sample: [{file: /etc/profile.d/x.sh, line: 2, why: "expected a line that sets NCCL_DEBUG and
    nothing else, found ..."}]
before:
  description: The changed lines by file, before the change.
  returned: success
  type: dict
  sample: {/etc/environment: [CUDA_VISIBLE_DEVICES=0]}
after:
  description: The same lines after the change, or as they would be.
  returned: success
  type: dict
  sample: {/etc/environment: ["# disabled by unhang: CUDA_VISIBLE_DEVICES=0"]}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.unhang_node.change.atomic_files import (
    Texts,
    shown,
    state_path,
    write_texts,
)
from ansible.module_utils.unhang_node.change.config.disabled_lines import Change, ManualStep
from ansible.module_utils.unhang_node.change.config.disabled_record import (
    forget_changes,
    plan_restore,
    save_changes,
)
from ansible.module_utils.unhang_node.change.config.disabled_setting import plan_disable
from ansible.module_utils.unhang_node.change.config.masking import mask_urls, masked_diff
from ansible.module_utils.unhang_node.change.journal.acting import ON_ROOTFS, enter
from ansible.module_utils.unhang_node.change.journal.saved_states import keep_files

OPTIONS = {
    "names": {"type": "list", "elements": "str", "default": []},
    "settings": {"type": "dict", "default": {}},
    "owner": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["disabled", "restored"], "default": "disabled"},
    **ON_ROOTFS,
}


def apply(module: AnsibleModule) -> tuple[Texts, list[Change], list[ManualStep]]:
    """(texts, changes, manual), with everything written unless in check mode. Raises OSError,
    ValueError."""
    rootfs, owner = module.params["rootfs"], module.params["owner"]
    if module.params["state"] == "restored":
        texts, manual = plan_restore(rootfs, owner)
        if not module.check_mode:
            keep_files(rootfs, module.params["state_id"], [*texts, state_path(owner)])
            write_texts(rootfs, texts)
            forget_changes(rootfs, owner)
        return texts, [], manual
    settings = {name: str(value) for name, value in module.params["settings"].items()}
    texts, changes, manual = plan_disable(rootfs, module.params["names"], settings)
    if changes and not module.check_mode:
        keep_files(rootfs, module.params["state_id"], [*texts, state_path(owner)])
        save_changes(rootfs, owner, changes)
        write_texts(rootfs, texts)
    return texts, changes, manual


def changed_lines(text: str, other: str) -> list[str]:
    """Lines that differ from the same line of the other text; both have the same number of
    lines."""
    pairs = zip(text.split("\n"), other.split("\n"))  # noqa: B905
    return [mask_urls(shown(one)) for one, two in pairs if one != two]


def main() -> None:
    """Plans, writes unless in check mode, and returns the result."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    enter(module)
    try:
        texts, changes, manual = apply(module)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(
        changed=bool(texts),
        lines=[
            {"file": change.file, "line": change.line, "text": mask_urls(shown(change.before))}
            for change in changes
        ],
        needs_manual_action=[row._asdict() for row in manual],
        before={path: changed_lines(before, after) for path, (before, after) in texts.items()},
        after={path: changed_lines(after, before) for path, (before, after) in texts.items()},
        diff=[masked_diff(before, after, path) for path, (before, after) in sorted(texts.items())],
    )


if __name__ == "__main__":
    main()
