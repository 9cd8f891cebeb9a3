# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Refuses a --limit that is written as Slurm writes hosts. Ansible reads gpu[001-003] otherwise, or says that there is no such host."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unhang_limit
short_description: Refuses a node set in --limit, and prints the hosts that it means
description:
  - Is an inventory plugin because Ansible reads inventories before it looks for the hosts of C(--limit). It reads no inventory itself.
options: {}
author:
  - the unhang authors
"""

import sys
from pathlib import Path

from ansible import context
from ansible.plugins.inventory import BaseInventoryPlugin

_TOOLS = [str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")]
sys.path += [folder for folder in _TOOLS if folder not in sys.path]  # plain ansible-playbook may run from an environment without unhang


class InventoryModule(BaseInventoryPlugin):
    """What Ansible looks for."""

    NAME = "unhang_limit"

    def verify_file(self, path):
        """False: no source is ours. Ends the program where the limit is a node set, for Ansible takes any other fault of a plugin for `not mine`."""
        if refusal := _refusal(str(context.CLIARGS.get("subset") or "")):
            sys.stderr.write(refusal + "\n")
            raise SystemExit(2)
        return False


def _refusal(limit):
    try:
        from unhang.ansible.limit_refusal import limit_refusal
    except ImportError:  # an environment without what unhang needs; playbooks that act refuse such a limit themselves
        return ""
    return limit_refusal(limit)
