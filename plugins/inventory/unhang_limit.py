# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Refuses a --limit in Slurm's notation, because Ansible reads gpu[001-003] differently, or finds
no such host."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unhang_limit
short_description: Refuses a node set in --limit, and prints the hosts that it means
description:
  - Is an inventory plugin because Ansible reads inventories before it looks for the hosts of
    C(--limit). It reads no inventory itself.
options: {}
author:
  - the unhang authors
"""

import sys
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.inventory import BaseInventoryPlugin

# plain ansible-playbook may run without unhang, or with another version of it; +=, for ansible-doc
# warns of other assignments to what is no name
sys.path[:0] += [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


class InventoryModule(BaseInventoryPlugin):
    """The class that Ansible loads."""

    NAME = "unhang_limit"

    def verify_file(self, path: str) -> Any:
        """Always False, because this plugin reads no inventory. Ends the program if the limit is a
        node set: any other error would only mean to Ansible that the file is not for this
        plugin."""
        if refusal := _refusal(str(context.CLIARGS.get("subset") or "")):
            sys.stderr.write(refusal + "\n")
            raise SystemExit(2)
        return False


def _refusal(limit: str) -> Any:
    try:
        from unhang.core.ansible.limit_refusal import limit_refusal
    except ImportError:  # an environment without unhang's dependencies; playbooks that act refuse such a limit themselves  # noqa: E501
        return ""
    return limit_refusal(limit)
