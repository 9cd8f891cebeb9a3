"""The whole path on booted nodes, once: audit, preview, repair, proof. The part of make test that
needs root."""

from __future__ import annotations

import pytest
from node_fixtures import (
    bed,
    fake_library,
    fleet,
    pytest_configure,
    pytest_report_header,
    why_not,
)
from pinned_fleet import pinned

__all__ = ["bed", "fake_library", "fleet", "pinned", "pytest_configure", "pytest_report_header"]

collect_ignore_glob = ["test_*.py"] if why_not() else []


@pytest.fixture(scope="session")
def layers():
    """Nothing over the root of the nodes: NCCL would be a download."""
    return []
