"""The baseline: facts of a node before a run changed it, stored on the node until it is proved
healthy or rolled back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..atomic_files import BASELINE, place_of, read_own_json, write_text

SCHEMA = "unhang/baseline/1"


def read_baseline(rootfs: str) -> dict[str, Any] | None:
    """The baseline, None if there is none. Raises OSError, and ValueError naming the file if it
    holds anything else."""
    return read_own_json(rootfs, BASELINE, SCHEMA)


def write_baseline(rootfs: str, baseline: Mapping[str, Any]) -> None:
    """Writes the baseline in one step. Raises OSError."""
    write_text(
        place_of(rootfs, BASELINE),
        json.dumps(dict(baseline, schema=SCHEMA), indent=1, sort_keys=True) + "\n",
        0o600,
    )


def remove_baseline(rootfs: str) -> None:
    """Removes the baseline after the node was proved healthy or rolled back."""
    write_text(place_of(rootfs, BASELINE), None)
