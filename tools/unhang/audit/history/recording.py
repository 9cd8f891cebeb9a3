"""Stores a run: reads everything first, then writes in one transaction what differs from the
history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from unhang.audit.history.database import WAIT_S, reading, writing
from unhang.audit.history.location import OFF, SETTING, database_file
from unhang.audit.history.machines import adopt
from unhang.audit.history.spans import store_facts, store_findings
from unhang.audit.history.stored import (
    BandwidthRow,
    StoredNode,
    Verdicts,
    read_bandwidth,
    read_nodes,
    read_verdicts,
)
from unhang.core.errors import UserError
from unhang.core.run.findings import NODE_VERDICTS, NOT_A_GPU_NODE
from unhang.core.run.run_folder import utc_now
from unhang.core.run.run_input import RunInput, read_run_input
from unhang.core.text import visible

# column of a run -> the verdict of nodes that it counts
COUNTED = {"no_gpu" if one == NOT_A_GPU_NODE else one: one for one in NODE_VERDICTS}


@dataclass(frozen=True)
class StoredRun:
    """A run in the form to store. bodies: packed text of contents that the history did not have
    when it was read; renamed: host -> its name in the history."""

    run: RunInput
    nodes: Mapping[str, StoredNode]
    verdicts: Verdicts | None
    bandwidth: list[BandwidthRow]
    bodies: Mapping[bytes, bytes]
    renamed: Mapping[str, str] = field(default_factory=dict)


def keep_run(folder: Path, given: str | None = None) -> str | None:
    """Stores a run that has just ended; a line for the operator if it is not stored, else None.
    Never raises, because a fault of the history must not make the run fail."""
    try:
        file = database_file(given)
        if file is None:
            return f"{SETTING}={OFF}: this run is not kept in the history"
        record(folder, file)
    except UserError as problem:
        return f"this run is not kept in the history: {visible(str(problem), 600)}"
    except Exception as problem:  # in any case the run has been read and judged
        return (
            "this run is not kept in the history: a fault of unhang itself:"
            f" {visible(f'{type(problem).__name__}: {problem}', 300)}"
        )
    return None


def record(folder: Path, file: Path, wait_s: float = WAIT_S) -> bool:
    """Stores the run; False if the history already has it. Raises UserError."""
    seen = _see(folder, _known_digests(file, wait_s))
    with writing(file, wait_s) as connection:
        return _store(connection, seen)


def _see(folder: Path, known: set[bytes]) -> StoredRun:
    run = read_run_input(folder)
    verdicts = read_verdicts(run)
    bodies: dict[bytes, bytes] = {}
    nodes = dict(read_nodes(run, verdicts.unread if verdicts else (), known, bodies))
    renamed = {host: node.name for host, node in nodes.items() if node.name is not None}
    seen = StoredRun(run, nodes, verdicts, read_bandwidth(folder), bodies, renamed)
    return _renamed(seen) if renamed else seen


def _renamed(seen: StoredRun) -> StoredRun:
    """With the names under which the history keeps hosts, everywhere."""

    def name(host: str) -> str:
        return seen.renamed.get(host, host)

    verdicts = seen.verdicts
    if verdicts is not None:
        found = {(name(host), problem): text for (host, problem), text in verdicts.found.items()}
        unknown = frozenset((name(host), rule) for host, rule in verdicts.unknown)
        verdicts = replace(verdicts, found=found, unknown=unknown)
    nodes = {name(host): node for host, node in seen.nodes.items()}
    return replace(
        seen,
        nodes=nodes,
        verdicts=verdicts,
        bandwidth=[row._replace(host=name(row.host)) for row in seen.bandwidth],
    )


def _known_digests(file: Path, wait_s: float) -> set[bytes]:
    """Digests of contents in the history, which need not be packed again. Contents are never
    removed."""
    if not file.exists():
        return set()
    with reading(file, wait_s) as connection:
        rows = connection.execute(
            "SELECT digest FROM contents WHERE id IN (SELECT content FROM facts WHERE to_run IS"
            " NULL)"
        )
        return {digest for (digest,) in rows}


def _store(connection: sqlite3.Connection, seen: StoredRun) -> bool:
    document = seen.run.document
    if connection.execute("SELECT 1 FROM runs WHERE id = ?", (document["id"],)).fetchone():
        return False
    run = _add_run(connection, seen)
    found = seen.verdicts.found if seen.verdicts else {}
    adopt(connection, seen.renamed)
    hosts = _host_ids(
        connection,
        {*seen.nodes, *(host for host, *_ in seen.bandwidth), *(host for host, _ in found)},
    )
    connection.executemany(
        "INSERT INTO visits VALUES (?, ?, ?)",
        ((hosts[host], run, node.status) for host, node in seen.nodes.items()),
    )
    store_facts(connection, run, hosts, seen.nodes, seen.bodies)
    if seen.verdicts is not None:
        store_findings(connection, run, hosts, seen.nodes, seen.verdicts)
    rows = (
        (hosts[host], op, size, ranks, run, busbw)
        for host, op, size, ranks, busbw in seen.bandwidth
    )
    connection.executemany("INSERT OR REPLACE INTO bandwidth VALUES (?, ?, ?, ?, ?, ?)", rows)
    return True


def _add_run(connection: sqlite3.Connection, seen: StoredRun) -> int:
    """Its number: runs count in the order in which they were stored."""
    document, verdicts = seen.run.document, seen.verdicts
    inventory = msgspec.json.encode(document.get("inventory")).decode()[:4000]
    limit = document.get("limit")
    head = (
        document["id"],
        str(seen.run.folder),
        document["started"],
        document.get("finished"),
        inventory,
        limit,
        utc_now(),
    )
    judged = (
        (verdicts.day, verdicts.policy, *(verdicts.counts.get(one, 0) for one in COUNTED.values()))
        if verdicts
        else (None,) * (2 + len(COUNTED))
    )
    columns = (
        "id, folder, started, finished, inventory, host_limit, stored, judged, policy,"
        f" {', '.join(COUNTED)}"
    )
    marks = ", ".join("?" * (len(head) + len(judged)))
    statement = f"INSERT INTO runs ({columns}) VALUES ({marks})"  # noqa: S608
    return int(connection.execute(statement, (*head, *judged)).lastrowid or 0)


def _host_ids(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
    connection.executemany(
        "INSERT OR IGNORE INTO hosts (name) VALUES (?)", ((name,) for name in sorted(names))
    )
    return dict(connection.execute("SELECT name, id FROM hosts"))
