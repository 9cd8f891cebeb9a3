"""Playbooks, roles, rollouts and NVML as complete programs on this machine: Ansible with a local
connection, a fake driver library."""

from __future__ import annotations

from forked_commands import compiled_rules
from local_fleet import fleet, shared_fleet
from page_visit import browser

__all__ = ["browser", "compiled_rules", "fleet", "shared_fleet"]
