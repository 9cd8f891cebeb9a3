"""Run folders: where they are, what is in them, how a document is written into one. The Ansible plugins write a run, everything else reads it here."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unhang.errors import UserError


@dataclass(frozen=True)
class Run:
    """folder: the run's own; document: run.json (schema unhang/run/1)."""

    folder: Path
    document: dict[str, Any]

    @property
    def hosts(self) -> list[str]:
        """Every host that was meant."""
        return list(self.document.get("hosts", []))


def new_run_id() -> str:
    """Sorts by time; two runs of one second differ in their last ten characters."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ-") + secrets.token_hex(5)


def list_runs(runs: Path) -> list[Path]:
    """Run folders, oldest first; [] when there is no such folder."""
    if not runs.is_dir():
        return []
    return sorted(entry for entry in runs.iterdir() if not entry.is_symlink() and (entry / "run.json").is_file())


def find_run(named: str | Path, runs: Path) -> Path:
    """A run folder by its path, by its id, or as "latest". Raises UserError."""
    for folder in (Path(named), runs / named):
        if (folder / "run.json").is_file():
            return folder.resolve()
    known = [run.name for run in list_runs(runs)][-3:]
    hint = f"the newest are {', '.join(known)}" if known else "there is none yet, make one with: unhang audit"
    raise UserError(f"expected a run folder (one that holds run.json), found none at {named}; {hint}")


def read_run(folder: Path) -> Run:
    """Raises UserError when run.json cannot be read."""
    return Run(folder, _read_object(folder / "run.json"))


def node_files(folder: Path) -> Iterator[Path]:
    """The nodes' files in the order of their names. The host is what stands inside, not the file's name."""
    yield from sorted((folder / "nodes").glob("*.json"))


def read_node(path: Path) -> dict[str, Any]:
    """One node file (schema unhang/node/1). Raises UserError."""
    return _read_object(path)


def write_atomically(path: Path, text: str) -> None:
    """The whole text or nothing. Raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as target:
            target.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def write_document(path: Path, document: Any) -> None:
    """A JSON document, whole or not at all. Raises OSError."""
    write_atomically(path, json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UserError(f"expected a readable file at {path}, found: {problem.strerror}") from None
    except ValueError as problem:
        raise UserError(f"expected JSON in {path}, found what is none: {problem}") from None
    if not isinstance(document, dict):
        raise UserError(f"expected a JSON object in {path}, found {type(document).__name__}")
    return document
