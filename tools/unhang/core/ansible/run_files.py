"""Writes the run folder for the Ansible plugins: runs/<id>/run.json and nodes/<host>.json, with the
functions of unhang.core.run.run_folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS
from unhang.core.errors import UserError
from unhang.core.run.run_folder import (
    file_stem,
    node_files,
    read_node,
    read_run,
    utc_now,
    write_document,
)
from unhang.core.run.whole_files import write_atomically

RUN_ENV = "UNHANG_RUN_DIR"  # the run that is under way; set before Ansible forks its workers
NEW_RUN_ENV = "UNHANG_NEW_RUN"  # the folder of the run that a play makes
# set when a run reads only the nodes of a plan: it is no audit, so neither runs/latest nor the
# history has it
NOT_LATEST_ENV = "UNHANG_NOT_LATEST"
# set when the play continues that run with the hosts that an earlier play did not read
GO_ON_ENV = "UNHANG_GO_ON"

NOT_ASKED = "the play ended before this node was asked"
NOT_ANSWERED = "the play ended before this node answered"
KILLED = "the process of Ansible that read this node was killed"

MOST_RAW = 100  # answers that were no documents, in a run
MOST_RAW_BYTES = 64 * 1024 * 1024


def node_document(
    host: str, groups: list[str], policy: dict, status: str, message: str | None, facts: dict | None
) -> dict[str, Any]:
    return {
        "schema": "unhang/node/1",
        "host": host,
        "groups": groups,
        "policy": policy,
        "status": status,
        "message": message,
        "facts": facts,
    }


def write_node(run: Path, document: dict[str, Any], raw: str | None = None) -> None:
    """Writes nodes/<host>.json, and beside it nodes/<host>.raw for an answer that was no document;
    the node's message says if it is not kept. Raises OSError.
    """
    stem = run / "nodes" / file_stem(document["host"])
    if raw is not None and (why := _keep(stem.with_name(stem.name + ".raw"), raw)):
        document = {**document, "message": f"{document['message']}; its answer was not kept: {why}"}
    write_document(stem.with_name(stem.name + ".json"), document)


def _keep(path: Path, raw: str) -> str:
    """Writes an answer that was no document, and returns "", or why it was not kept. Looks at the
    folder once it is written, so that the limits hold for writers that run at the same time.
    """
    try:
        write_atomically(path, raw[:ANSWER_LIMIT_CHARS])
        with os.scandir(path.parent) as entries:
            kept = [Path(entry) for entry in entries if entry.name.endswith(".raw")]
        if len(kept) <= MOST_RAW and sum(map(_size, kept)) <= MOST_RAW_BYTES:
            return ""
        path.unlink()
    except OSError as problem:  # the record must be written; the raw answer is only an extra
        return problem.strerror or str(problem)
    return f"at most {MOST_RAW} and {MOST_RAW_BYTES >> 20} MiB are, in a run"


def _size(path: Path) -> int:
    """Bytes of a file; 0 for one that another writer has removed. Raises OSError."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def close_for_another(run: Path) -> None:
    """Closes the run of a play that was killed: writes each host's file, points runs/latest here,
    and records in run.json that the run did not finish."""
    for host in read_run(run).hosts:
        if not has_node(run, host):
            write_node(run, node_document(host, [], {}, "failed", NOT_ANSWERED, None))
    with contextlib.suppress(OSError):
        point_latest(run)


def finish_run(run: Path) -> None:
    """Records in run.json that every node was asked, where the play itself could not."""
    write_document(run / "run.json", {**read_run(run).document, "finished": utc_now()})


def killed_hosts(run: Path) -> list[str]:
    return [host for host, message in _messages(run) if message.startswith(KILLED)]


def take_unread(run: Path) -> list[str]:
    """Hosts that were not asked, or had not answered, when the play ended. Removes their records,
    so that they can be asked again."""
    unread = [host for host, message in _messages(run) if message in (NOT_ASKED, NOT_ANSWERED)]
    for host in unread:
        _file_of(run, host).unlink(missing_ok=True)
    return unread


def _messages(run: Path) -> Iterator[tuple[str, str]]:
    """(host, message) of each node that failed."""
    for path in node_files(run):
        with contextlib.suppress(UserError):
            document = read_node(path)
            if document.get("status") == "failed":
                yield str(document["host"]), str(document.get("message"))


def has_node(run: Path, host: str) -> bool:
    return _file_of(run, host).exists()


def _file_of(run: Path, host: str) -> Path:
    return run / "nodes" / (file_stem(host) + ".json")


def facts_of(run: Path, host: str, wanted: Set[str]) -> dict[str, Any] | None:
    """What this run has read of a node, these sections of it. None if the node was not read, or
    without one of them."""
    try:
        document = read_node(_file_of(run, host))
    except UserError:
        return None
    if document.get("status") != "ok":
        return None
    sections = document["facts"]["sections"]
    if not wanted <= sections.keys():
        return None
    return {**document["facts"], "sections": {name: sections[name] for name in sorted(wanted)}}


def becomes_latest() -> bool:
    """Whether the run that is under way is the latest audit."""
    return not os.environ.get(NOT_LATEST_ENV)


def point_latest(run: Path) -> None:
    link = run.parent / f".latest-{run.name}"
    link.symlink_to(run.name)
    link.replace(run.parent / "latest")
