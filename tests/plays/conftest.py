"""Playbooks, roles, commands and NVML as whole programs on this machine: Ansible with a local connection, recorded nodes, a fake driver library."""

from __future__ import annotations

from local_fleet import fleet, shared_fleet

__all__ = ["fleet", "shared_fleet"]
