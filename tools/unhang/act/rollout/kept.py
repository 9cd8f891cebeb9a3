"""What a rollout keeps of each host beside the plan: its baseline, in case the node loses its own,
and what the latest proof saw."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unhang.act.rollout.baseline import KEPT, Baseline, from_document, to_document
from unhang.core.errors import UserError
from unhang.core.run.run_folder import file_stem, write_atomically

PROOFS = "proofs"


def proof_of(beside: Path, host: str) -> Baseline | None:
    """What the latest proof of a host saw after the change; None if nothing was kept. beside: the
    folder of the plan. Raises UserError, OSError."""
    return _read(_file(beside, PROOFS, host))


def keep_proof(beside: Path, host: str, seen: Baseline) -> None:
    """Writes what a proof saw. Raises OSError."""
    _keep(beside, PROOFS, host, to_document(seen))


def keep_baseline(beside: Path, host: str, document: Mapping[str, Any]) -> None:
    """Writes a copy of the baseline that the node has stored. Raises OSError."""
    _keep(beside, KEPT, host, document)


def _keep(beside: Path, folder: str, host: str, document: Mapping[str, Any]) -> None:
    """The journal relies on it, so it is on the disk first."""
    path = _file(beside, folder, host)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(document, indent=1) + "\n")
    with path.open("rb") as file:
        os.fsync(file.fileno())


def baseline_beside(beside: Path, host: str) -> Baseline:
    """The copy of the host's baseline, for a node that has lost its own. beside: the folder of the
    plan. Raises UserError, also if there is none."""
    path = _file(beside, KEPT, host)
    if (kept := _read(path)) is None:
        raise UserError(
            f"the baseline of {host} is neither on the node nor in {path}: how the node was before"
            " the change is not known, so nothing can prove it"
        )
    return kept


def _read(path: Path) -> Baseline | None:
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else None
        return None if text is None else from_document(json.loads(text))
    except ValueError as problem:
        raise UserError(
            f"{path} must hold the state of a node, and is not JSON: {problem}"
        ) from None


def _file(beside: Path, folder: str, host: str) -> Path:
    return beside / folder / f"{file_stem(host)}.json"
