"""Audit, smoke test and gate on booted nodes."""

from __future__ import annotations

from node_fixtures import (
    bed,
    class_fleet,
    fake_library,
    fleet,
    layers,
    nccl,
    pytest_configure,
    pytest_report_header,
    shared_fleet,
    why_not,
)
from pinned_fleet import pinned

__all__ = [
    "bed",
    "class_fleet",
    "fake_library",
    "fleet",
    "layers",
    "nccl",
    "pinned",
    "pytest_configure",
    "pytest_report_header",
    "shared_fleet",
]

collect_ignore_glob = ["test_*.py"] if why_not() else []
