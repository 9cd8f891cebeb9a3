"""The files of signatures, in the folders of the programs that print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.core import catalogue


def signature_files() -> list[tuple[Path, dict[str, Any]]]:
    """(path, content) of each file. Raises UserError naming file and fault."""
    return catalogue.checked_files("signatures", "signature-1")
