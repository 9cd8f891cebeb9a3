"""Commands, the demo fleet and what else depends on the shipped rules, as whole programs on this
machine: a local connection, recorded nodes."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from forked_commands import PROJECT, compiled_rules, forked
from local_fleet import fleet, shared_fleet
from page_visit import browser

__all__ = ["browser", "compiled_rules", "fleet", "shared_fleet"]


@dataclass(frozen=True)
class Audited:
    """A finished `unhang audit --format json`. Tests change only copies of its folder."""

    folder: Path
    printed: str
    errors: str
    code: int


@pytest.fixture(scope="session")
def demo_audit(tmp_path_factory) -> Audited:
    """One audit of inventory/demo for all workers."""
    own = tmp_path_factory.getbasetemp()
    place = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "demo"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            done = forked(
                [
                    "audit",
                    "--inventory",
                    "inventory/demo",
                    "--out",
                    place / "runs",
                    "--format",
                    "json",
                ],
                PROJECT,
                os.environ,
            )
            (place / "ended.json").write_text(
                json.dumps([done.stdout, done.stderr, done.returncode])
            )
    return Audited(
        (place / "runs" / "latest").resolve(), *json.loads((place / "ended.json").read_text())
    )
