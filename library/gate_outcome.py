# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin with this name, which runs on the controller. Nothing of it
runs on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gate_outcome
short_description: Ends the admission of a node with its outcome
description:
  - Used by playbooks/preprovision.yml. The task is ok for a node that passes, and fails for a node
    that fails.
  - A node that is not proved ends as unreachable, unless another node failed, so that
    ansible-playbook exits with 4 instead of 2.
options:
  decisions:
    description: The outcome (pass, fail, not proved) and the reasons of each host.
    type: dict
    required: true
author: [unhang maintainers (@unhang)]
"""

EXAMPLES = r"""
- name: Decide
  gate_outcome:
    decisions: {gpu001: {outcome: pass, reasons: []}}
"""

RETURN = r"""
msg:
  description: The outcome and its reasons in one line.
  type: str
  returned: always
"""

if __name__ == "__main__":
    from ansible.module_utils.basic import AnsibleModule

    AnsibleModule(argument_spec={}).fail_json(
        msg=(
            "the module gate_outcome runs without its action plugin; set ANSIBLE_CONFIG to unhang's"
            " ansible.cfg"
        )
    )
