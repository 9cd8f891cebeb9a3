"""The files of signatures, in the folders of the programs that print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.core import catalogue

KINDS = ("any_program", "commands", "containers", "driver_and_kernel", "frameworks", "hosts", "launchers", "nccl", "pytorch", "rdma")


def signature_files() -> list[tuple[Path, dict[str, Any]]]:
    """(path, content) of each file. Raises UserError naming file and fault."""
    return [one for kind in KINDS for one in catalogue.checked_files(f"signatures/{kind}", "signature-1")]
