"""Playbooks, roles, commands and NVML as complete programs on this machine: Ansible with a local connection, recorded nodes, a fake driver library."""

from __future__ import annotations

from local_fleet import fleet, shared_fleet
from page_visit import browser

__all__ = ["browser", "fleet", "shared_fleet"]
