"""Playbooks, roles and commands as whole programs, on this machine: Ansible with a local connection, over recorded nodes."""

from __future__ import annotations

from local_fleet import fleet, shared_fleet

__all__ = ["fleet", "shared_fleet"]
