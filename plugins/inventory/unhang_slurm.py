# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The inventory plugin that reads the nodes from Slurm. Implementation:
unhang.core.ansible.slurm_inventory, which imports no Ansible."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unhang_slurm
short_description: Nodes of a Slurm cluster, with partitions, features, GRES types and switches as
  groups
description:
  - Asks C(scontrol) for nodes and topology, on the controller. The inventory file's name ends with
    V(.unhang_slurm.yml).
  - Each node is a host with the variables C(slurm_state), C(slurm_reason), C(slurm_reason_by),
    C(slurm_partitions), C(slurm_features), C(slurm_gres), and where
    Slurm knows them C(ansible_host) (its NodeAddr) and C(unhang_switch) (the leaf that it hangs
    on).
  - Groups are C(slurm), C(slurm_partition_NAME), C(slurm_feature_NAME), C(slurm_gres_NAME),
    C(slurm_gres_NAME_TYPE) and C(slurm_switch_NAME), a switch above
    others as their parent. What a group's name cannot hold becomes an underscore; two names that
    would become one get a piece of a checksum behind them.
  - A node in the state FUTURE is left out, for there is no such machine yet.
extends_documentation_fragment: [constructed]
options:
  plugin:
    description: This plugin's name.
    required: true
    choices: [unhang_slurm]
  command:
    description: What runs scontrol. V([ssh, slurmctl1, scontrol]) asks on another host.
    type: list
    elements: str
    default: [scontrol]
  prefix:
    description: What names of groups begin with, and the name of the group of all nodes.
    type: str
    default: slurm
  timeout_s:
    description: Seconds to wait for an answer of scontrol.
    type: int
    default: 60
author:
  - the unhang authors
"""

EXAMPLES = r"""
# cluster.unhang_slurm.yml
plugin: unhang_slurm

# drained.unhang_slurm.yml: slurmctld is on another host, and drained nodes are a group
# plugin: unhang_slurm
# command: [ssh, slurmctl1, scontrol]
# groups:
#   drained: "'DRAIN' in slurm_state"
"""

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable

# plain ansible-playbook may run without unhang, or with another version of it; +=, for ansible-doc
# warns of other assignments to what is no name
sys.path[:0] += [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


class InventoryModule(BaseInventoryPlugin, Constructable):
    """The class that Ansible loads."""

    NAME = "unhang_slurm"

    def verify_file(self, path: str) -> Any:
        """True for files with this plugin's name in their file name."""
        return super().verify_file(path) and path.endswith(
            (".unhang_slurm.yml", ".unhang_slurm.yaml")
        )

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Asks Slurm, and adds its nodes to the inventory."""
        from unhang.core.ansible.slurm_inventory import inventory_of, read_slurm
        from unhang.core.errors import UserError

        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        prefix = str(self.get_option("prefix"))
        if not prefix.isidentifier() or not prefix.isascii():
            raise AnsibleParserError(
                f"the prefix in {path} consists of letters, digits and '_', and {prefix!r} does not"
            )
        try:
            command = [str(word) for word in self.get_option("command")]
            found = inventory_of(*read_slurm(command, self.get_option("timeout_s")), prefix)
        except UserError as problem:
            raise AnsibleParserError(str(problem)) from None
        self._add(found)

    def _add(self, found: Any) -> None:
        for name, variables in found.hosts.items():
            self.inventory.add_host(name)
            for key, value in variables.items():
                self.inventory.set_variable(name, key, value)
        for group in (*found.groups, *found.children):
            self.inventory.add_group(group)
        for group, members in found.groups.items():
            for name in members:
                self.inventory.add_child(group, name)
        for group, children in found.children.items():
            for child in children:
                self.inventory.add_group(child)
                self.inventory.add_child(group, child)
        strict = self.get_option("strict")
        for name, variables in found.hosts.items():
            self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
            self._add_host_to_composed_groups(
                self.get_option("groups"), variables, name, strict=strict
            )
            self._add_host_to_keyed_groups(
                self.get_option("keyed_groups"), variables, name, strict=strict
            )
