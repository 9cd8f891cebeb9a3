"""The folder of a run in the commands that are shown."""

from __future__ import annotations

from pathlib import Path

from unhang.core.run.run_folder import runs_folder


def as_typed(folder: Path) -> str:
    """The folder as a person would type it: `runs/ID` where every command finds a run by that, else
    relative to the current folder if it is below it."""
    here, runs = Path.cwd(), runs_folder().resolve()
    if folder.parent.resolve() == runs != here:
        return f"{runs.name}/{folder.name}"
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)
