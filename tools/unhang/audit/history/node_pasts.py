"""The events of each node of a run in the last runs, as lines for the run's page. Limited, for a
history of any size."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unhang.audit.history.changes import changes_between
from unhang.audit.history.database import reading
from unhang.audit.history.location import database_file
from unhang.audit.history.machines import asked_name
from unhang.audit.report.folding import item_label
from unhang.core.errors import UserError
from unhang.core.run.run_folder import read_run
from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import brief, visible

MOST_RUNS = 20  # the run itself and those before it
MOST_LINES, MOST_IN_ALL = 8, 40_000  # of a node; of the page
_MET = (
    "SELECT hosts.name FROM visits JOIN hosts ON hosts.id = host JOIN runs ON runs.seq = run WHERE"
    " runs.id = ?"
)
WAIT_S = 1.0  # wait for another writer; a page can do without the history


def node_pasts(folder: Path, given: str | None = None) -> dict[str, tuple[str, ...]]:
    """Host -> lines, the newest first; {} where there is no history, or where it does not have this
    run. given: as --db names the history."""
    try:
        file = database_file(given)
        if file is None or not file.is_file():
            return {}
        with reading(file, WAIT_S) as connection:
            return {
                asked_name(host): lines
                for host, lines in _pasts(
                    connection, str(read_run(folder).document.get("id"))
                ).items()
            }
    except UserError:
        return {}  # commands that read the history report its faults


def _pasts(connection: sqlite3.Connection, run: str) -> dict[str, tuple[str, ...]]:
    met = {name for (name,) in connection.execute(_MET, (run,))}
    rows = connection.execute(
        "SELECT seq, started FROM runs WHERE seq <= (SELECT seq FROM runs WHERE id = ?) ORDER BY"
        " seq DESC LIMIT ?",
        (run, MOST_RUNS),
    ).fetchall()
    lines: dict[str, list[str]] = {}
    remaining = MOST_IN_ALL
    for (now, started), (before, _) in itertools.pairwise(rows):
        for host, line in _lines(
            connection, before, now, visible(started, 40).replace("T", " ")[:16]
        ):
            past = lines.setdefault(host, []) if host in met else []
            if host in met and remaining and len(past) < MOST_LINES:
                past.append(line)
                remaining -= 1
    return {host: tuple(past) for host, past in lines.items() if past}


def _value(value: Any) -> str:
    return _text(brief(value), 60)


def _text(text: str, limit: int) -> str:
    return visible(without_secrets(text), limit)


def _lines(
    connection: sqlite3.Connection, before: int, now: int, when: str
) -> Iterator[tuple[str, str]]:
    """What was found at the first look at a node is no event of it."""
    changes = changes_between(connection, before, now)
    first = frozenset(changes.first_seen)
    for fact in changes.facts:
        line = f"{when} {visible(fact.fact, 120)}: {_value(fact.before)} -> {_value(fact.now)}"
        yield from ((host, line) for host in fact.hosts if host not in first)
    for found in changes.findings:
        place = item_label(found.place)
        line = (
            f"{when} {found.change}: {visible(found.severity, 20)}:"
            f" {_text(found.title, 120)}{': ' + _text(place, 60) if place else ''}"
        )
        yield from ((host, line) for host in found.hosts if host and host not in first)
