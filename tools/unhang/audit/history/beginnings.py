"""When a finding began and what changed in the same run; the events of one node. Queries in, rows
out."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unhang.audit.history.changes import FactChange, fact_changes, finding_changes, parsed
from unhang.core.run.run_input import natural
from unhang.core.text import brief

_SPANS = """
SELECT f.from_run, f.to_run, f.ended, severity, verdict, place, hosts.name, found,
       (SELECT max(w.run) FROM visits w WHERE w.host = f.host AND w.run < f.from_run)
FROM findings f JOIN problems p ON p.id = f.problem JOIN rules ON rules.id = p.rule JOIN hosts ON hosts.id = f.host
WHERE rules.name = ? ORDER BY f.from_run
"""  # noqa: E501
_VISITS = (
    "SELECT v.run, v.status, runs.id, runs.started FROM visits v JOIN runs ON runs.seq = v.run JOIN"
    " hosts ON hosts.id = v.host WHERE hosts.name = ? ORDER BY 1"
)
_HOLDING = """
SELECT rules.name, title, severity, verdict, place, found, runs.id, runs.started
FROM findings f JOIN problems p ON p.id = f.problem JOIN rules ON rules.id = p.rule JOIN hosts ON hosts.id = f.host JOIN runs ON runs.seq = f.from_run
WHERE hosts.name = ? AND f.to_run IS NULL ORDER BY f.from_run DESC, rules.name
"""  # noqa: E501


@dataclass(frozen=True)
class Together:
    """A fact that changed in the run in which a finding began. on: how many of its nodes; others:
    nodes with the same change and without the finding."""

    fact: str
    before: Any
    now: Any
    on: int
    others: int


@dataclass(frozen=True)
class Beginning:
    """Nodes on which a finding began in the same run. ended: null while it exists;
    since_first_look: no earlier run had read any of these nodes."""

    run: str
    started: str
    severity: str
    verdict: str
    place: Any
    found: str
    hosts: tuple[str, ...]
    ended: str | None
    ended_in: str | None
    since_first_look: bool
    together: tuple[Together, ...]


@dataclass(frozen=True)
class Event:
    """An event of a node, found by a run. what: new, changed, waived, resolved, not judged, fact,
    or its status."""

    run: str
    started: str
    what: str
    text: str


@dataclass(frozen=True)
class Holding:
    """A present finding of a node, and when it began."""

    rule: str
    title: str
    severity: str
    verdict: str
    place: Any
    found: str
    run: str
    started: str


def names_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """Names of all hosts, or of all rules that ever found something."""
    query = {"hosts": "SELECT name FROM hosts WHERE name != ''", "rules": "SELECT name FROM rules"}[
        table
    ]
    return {name for (name,) in connection.execute(query)}


def beginnings(connection: sqlite3.Connection, rule: str) -> list[Beginning]:
    """When a rule's findings began, on which nodes, and which changes of their configuration came
    with them; the oldest first."""
    groups: dict[tuple[Any, ...], list[Sequence[Any]]] = {}
    for row in connection.execute(_SPANS, (rule,)):
        groups.setdefault(row[:6], []).append(row)
    runs = {
        seq: (run, started)
        for seq, run, started in connection.execute("SELECT seq, id, started FROM runs")
    }
    known: dict[int, tuple[FactChange, ...]] = {}
    found = []
    for (began, ended_in, ended, severity, verdict, place), rows in groups.items():
        hosts = tuple(sorted((row[6] for row in rows), key=natural))
        if began not in known:
            known[began] = fact_changes(connection, began - 1, began)
        together = _together(known[began], hosts)
        last = runs[ended_in][0] if ended_in else None
        first_look = all(row[8] is None for row in rows)
        found.append(
            Beginning(
                *runs[began],
                severity,
                verdict,
                parsed(place),
                rows[0][7],
                hosts,
                ended,
                last,
                first_look,
                together,
            )
        )
    return found


def _together(changed: Sequence[FactChange], hosts: Sequence[str]) -> tuple[Together, ...]:
    """Drivers and kernels come first, as fact_changes has them; among each what is on most of the
    nodes."""
    mine = frozenset(hosts)
    rows = [
        Together(
            one.fact,
            one.before,
            one.now,
            len(mine.intersection(one.hosts)),
            len(set(one.hosts) - mine),
        )
        for one in changed
    ]
    return tuple(row for row in rows if row.on)


def holding(connection: sqlite3.Connection, host: str) -> list[Holding]:
    """What was found on a node and holds, the newest first."""
    rows = connection.execute(_HOLDING, (host,))
    return [
        Holding(rule, title, severity, verdict, parsed(place), *rest)
        for rule, title, severity, verdict, place, *rest in rows
    ]


def events(connection: sqlite3.Connection, host: str) -> list[Event]:
    """What happened to a node, the oldest first. What was found at the first look is no event."""
    visits = connection.execute(_VISITS, (host,)).fetchall()
    happened: list[Event] = []
    for (before, was, *_), (now, status, run, started) in itertools.pairwise(visits):
        if was != status:
            happened.append(Event(run, started, "status", f"{was} -> {status}"))
        happened += [
            Event(run, started, what, text)
            for what, text in _of_host(connection, before, now, host)
        ]
    return happened


def _of_host(
    connection: sqlite3.Connection, before: int, now: int, host: str
) -> list[tuple[str, str]]:
    found = [
        (one.change, f"{one.severity}: {one.title} [{one.rule}]")
        for one in finding_changes(connection, before, now, host)
    ]
    changed = [
        ("fact", f"{one.fact}: {brief(one.before)} -> {brief(one.now)}")
        for one in fact_changes(connection, before, now, host)
    ]
    return [*changed, *found]
