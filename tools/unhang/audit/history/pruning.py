"""Which run folders may be removed. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.core.errors import UserError
from unhang.core.run.run_folder import list_runs, read_run

# files of a rollout: the record of its changes, from which it can be continued
JOURNAL, JOURNAL_LOCK = "journal.jsonl", "journal.lock"


@dataclass(frozen=True)
class RunOnDisk:
    """started: from run.json. kept: why the folder is kept at any age; None if it may be
    removed."""

    folder: Path
    started: str
    kept: str | None


def runs_on_disk(runs: Path) -> list[RunOnDisk]:
    """The run folders, oldest first. Raises OSError."""
    latest = (runs / "latest").resolve()
    return [_on_disk(folder, latest) for folder in list_runs(runs)]


def _on_disk(folder: Path, latest: Path) -> RunOnDisk:
    try:
        document = read_run(folder).document
    except UserError:
        return RunOnDisk(folder, "", "its run.json cannot be read")
    kept = None
    if folder.resolve() == latest:
        kept = "it is the latest"
    elif document.get("finished") is None:
        kept = "it was not finished"
    elif (folder / JOURNAL).exists() or (folder / JOURNAL_LOCK).exists():
        kept = "it holds the journal of a rollout"
    return RunOnDisk(folder, str(document.get("started") or ""), kept)


def to_prune(found: Sequence[RunOnDisk], keep: int | None, before: str | None) -> list[RunOnDisk]:
    """Those that are not among the newest `keep` and began before that time (UTC, as run.json has
    it); where one is None, the other decides alone."""
    if keep is None and before is None:
        return []
    ordered = sorted(found, key=lambda one: (one.started, one.folder.name))
    older = ordered[: max(0, len(ordered) - keep)] if keep is not None else ordered
    return [
        one
        for one in older
        if one.kept is None and one.started and (before is None or one.started < before)
    ]
