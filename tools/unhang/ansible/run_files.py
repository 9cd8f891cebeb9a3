"""The run folder as the Ansible plugins write it: runs/<id>/run.json and nodes/<host>.json. what it is, and how a file is written, is unhang.run_folder's."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unhang.ansible.answer import ANSWER_LIMIT_CHARS
from unhang.run_folder import file_stem, write_atomically, write_document

RUN_ENV = "UNHANG_RUN_DIR"  # the run that is under way; set before Ansible forks its workers
SPILL_ENV = "UNHANG_RUN_SPILL"  # where a node's file goes when the run folder's disk is full


def utc_now() -> str:
    """RFC 3339, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_document(host: str, groups: list[str], policy: dict, status: str, message: str | None, facts: dict | None) -> dict[str, Any]:
    """Schema unhang/node/1."""
    return {"schema": "unhang/node/1", "host": host, "groups": groups, "policy": policy, "status": status, "message": message, "facts": facts}


def write_node(run: Path, document: dict[str, Any], raw: str | None = None) -> None:
    """nodes/<host>.json, and beside it nodes/<host>.raw for an answer that was no document. Raises OSError."""
    stem = run / "nodes" / file_stem(document["host"])
    if raw is not None:
        with contextlib.suppress(OSError):  # the record counts, the rubbish is a courtesy
            write_atomically(stem.with_name(stem.name + ".raw"), raw[:ANSWER_LIMIT_CHARS])
    write_document(stem.with_name(stem.name + ".json"), document)


def write_node_or_spill(run: Path, spill: Path | None, document: dict[str, Any], raw: str | None = None) -> str | None:
    """Like write_node; when the run folder takes no more, the file goes under `spill` and the reason comes back. Raises OSError when neither works."""
    try:
        write_node(run, document, raw)
        return None
    except OSError as problem:
        if spill is None:
            raise
        (spill / "nodes").mkdir(exist_ok=True)
        write_node(spill, document)
        return problem.strerror or str(problem)


def has_node(run: Path, host: str) -> bool:
    """True when this host's record is written."""
    return (run / "nodes" / (file_stem(host) + ".json")).exists()


def point_latest(run: Path) -> None:
    """runs/latest leads to this run. Raises OSError."""
    link = run.parent / f".latest-{run.name}"
    link.symlink_to(run.name)
    link.replace(run.parent / "latest")
