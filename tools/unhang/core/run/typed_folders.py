"""The folder of a run in the commands that are shown."""

from __future__ import annotations

from pathlib import Path


def as_typed(folder: Path) -> str:
    """The run as a person would type it: relative to the current folder if it is below it."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)
