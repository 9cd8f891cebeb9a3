"""Where the project's own catalogue is."""

from __future__ import annotations

from pathlib import Path

import unhang

PACKAGE = Path(unhang.__file__).resolve().parent


def folders_of(kind: str) -> list[Path]:
    """The folders of one kind of rows (rules, tables, entries, signatures, causes): a wing keeps
    its own in its catalogue/."""
    return sorted(PACKAGE.glob(f"*/catalogue/{kind}"))


def is_built_in(path: Path) -> bool:
    """True for a file or folder of the project's own catalogue."""
    return path.is_relative_to(PACKAGE) and "catalogue" in path.relative_to(PACKAGE).parts
