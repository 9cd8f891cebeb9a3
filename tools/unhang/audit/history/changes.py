"""Changes between two runs, as queries over spans. Hosts with the same change share a row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.audit.history.fact_changes import changes_of_section
from unhang.audit.history.packed import unpack_section
from unhang.audit.history.spans import GONE
from unhang.audit.history.stored import lasting_place
from unhang.audit.rules.rules import SEVERITIES
from unhang.core.run.run_input import natural

NEW, CHANGED, WAIVED, RESOLVED, NOT_JUDGED = "new", "changed", "waived", "resolved", "not judged"
WORDS = (NEW, CHANGED, WAIVED, RESOLVED, NOT_JUDGED)
# Order of sections: a change of the driver or the kernel explains most new findings; then
# libraries; then the rest.
SECTIONS = ("driver", "kernel", "fabric_manager", "cuda", "nccl", "torch", "packages")
_COLUMNS = (
    "hosts.name, rules.name, title, severity, verdict, place, waiver, found, f.from_run, f.ended"
)
_JOINED = (
    "FROM findings f JOIN problems p ON p.id = f.problem JOIN rules ON rules.id = p.rule JOIN hosts"
    " ON hosts.id = f.host"
)
_OF_HOST = "(:host IS NULL OR f.host = (SELECT id FROM hosts WHERE name = :host))"
_HELD = """EXISTS (SELECT 1 FROM findings g WHERE g.host = f.host AND g.problem = f.problem AND g.from_run <= :{0} AND (g.to_run IS NULL OR g.to_run > :{0}))"""  # noqa: E501
_BEGUN = (
    f"SELECT {_COLUMNS} {_JOINED} WHERE f.from_run > :a AND f.from_run <= :b AND (f.to_run IS NULL"
    f" OR f.to_run > :b) AND NOT {_HELD.format('a')} AND {_OF_HOST}"
)
_ENDED = (
    f"SELECT {_COLUMNS} {_JOINED} WHERE f.to_run > :a AND f.to_run <= :b AND f.from_run <= :a AND"
    f" NOT {_HELD.format('b')} AND {_OF_HOST}"
)
_CONTENT_AT = (
    "(SELECT content FROM facts g WHERE g.host = c.host AND g.section = c.section AND g.from_run <="
    " :{0} ORDER BY g.from_run DESC LIMIT 1)"
)
_FACTS = f"""
SELECT c.section, hosts.name, {_CONTENT_AT.format("a")}, {_CONTENT_AT.format("b")}
FROM (SELECT DISTINCT host, section FROM facts f WHERE from_run > :a AND from_run <= :b AND {_OF_HOST}) c JOIN hosts ON hosts.id = c.host
"""  # noqa: E501, S608
_FIRST_SEEN = """
SELECT DISTINCT hosts.name FROM visits v JOIN hosts ON hosts.id = v.host
WHERE v.run > :a AND v.run <= :b AND NOT EXISTS (SELECT 1 FROM visits w WHERE w.host = v.host AND w.run <= :a)
"""  # noqa: E501
_NOT_ASKED = """
SELECT hosts.name FROM visits v JOIN hosts ON hosts.id = v.host
WHERE v.run = :a AND NOT EXISTS (SELECT 1 FROM visits w WHERE w.host = v.host AND w.run = :b)
"""
_ASKED_AGAIN = """
SELECT hosts.name FROM visits v JOIN hosts ON hosts.id = v.host
WHERE v.run = :b
  AND NOT EXISTS (SELECT 1 FROM visits w WHERE w.host = v.host AND w.run = :a)
  AND EXISTS (SELECT 1 FROM visits w WHERE w.host = v.host AND w.run < :a)
"""


@dataclass(frozen=True)
class FoundChange:
    """change: one of WORDS. place: of the device, {} for the node itself; found: the text of the
    first of the hosts, verbatim."""

    change: str
    severity: str
    rule: str
    title: str
    place: Mapping[str, Any]
    found: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class FactChange:
    """before, now: None where there is no value."""

    fact: str
    before: Any
    now: Any
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Changes:
    """first_seen: nodes that no earlier run asked; not_asked: nodes that the earlier run asked and
    the later one did not; asked_again: nodes that the later run asked, the earlier one did not, and
    one before both did. What runs between the two asked counts for first_seen alone."""

    findings: tuple[FoundChange, ...]
    facts: tuple[FactChange, ...]
    first_seen: tuple[str, ...]
    not_asked: tuple[str, ...]
    asked_again: tuple[str, ...] = ()


def changes_between(connection: sqlite3.Connection, before: int, now: int) -> Changes:
    """Differences between run `before` and run `now`, both given by number. A node that was not
    read since is unchanged."""
    span = {"a": before, "b": now}
    first_seen = _names(connection.execute(_FIRST_SEEN, span))
    not_asked, asked_again = (
        _names(connection.execute(_NOT_ASKED, span)),
        _names(connection.execute(_ASKED_AGAIN, span)),
    )
    return Changes(
        finding_changes(connection, before, now),
        fact_changes(connection, before, now),
        first_seen,
        not_asked,
        asked_again,
    )


def _names(rows: Iterable[tuple[str]]) -> tuple[str, ...]:
    return tuple(sorted((name for (name,) in rows), key=natural))


def finding_changes(
    connection: sqlite3.Connection, before: int, now: int, host: str | None = None
) -> tuple[FoundChange, ...]:
    """Findings that began, ended or changed between the two runs, of all hosts or of one; most
    severe first."""
    span = {"a": before, "b": now, "host": host}
    begun, ended = (
        connection.execute(_BEGUN, span).fetchall(),
        connection.execute(_ENDED, span).fetchall(),
    )
    places = {_identity(row) for row in begun}
    otherwise = places & {_identity(row) for row in ended}
    same = {_alike(row) for row in ended}  # a file of the earlier run has the place in another form
    groups: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for row in (row for row in begun if _alike(row) not in same):
        word = WAIVED if row[4] == "waived" else CHANGED if _identity(row) in otherwise else NEW
        groups.setdefault((word, row[3], row[1], row[2], row[5]), []).append((row[0], row[7]))
    for row in ended:
        if _identity(row) not in places:
            groups.setdefault(
                (RESOLVED if row[9] == GONE else NOT_JUDGED, row[3], row[1], row[2], row[5]), []
            ).append((row[0], row[7]))
    found = [
        FoundChange(
            word,
            severity,
            rule,
            title,
            parsed(place),
            members[0][1],
            tuple(sorted((host for host, _ in members), key=natural)),
        )
        for (word, severity, rule, title, place), members in groups.items()
    ]
    return tuple(
        sorted(
            found,
            key=lambda one: (
                WORDS.index(one.change),
                _severity(one.severity),
                -len(one.hosts),
                one.rule,
                str(one.place),
            ),
        )
    )


def _identity(row: Sequence[Any]) -> tuple[str, str, str]:
    """host, rule, place"""
    return row[0], row[1], json.dumps(lasting_place(parsed(row[5])), sort_keys=True)


def _alike(row: Sequence[Any]) -> tuple[Any, ...]:
    """host, rule, place, severity, verdict, waiver"""
    return *_identity(row), row[3], row[4], row[6]


def _severity(name: str) -> int:
    return SEVERITIES.index(name) if name in SEVERITIES else len(SEVERITIES)


def parsed(text: str) -> dict[str, Any]:
    """Decodes an object of JSON that the history wrote; a text that was cut, and anything else,
    stays text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"": text}


def fact_changes(
    connection: sqlite3.Connection, before: int, now: int, host: str | None = None
) -> tuple[FactChange, ...]:
    """Configuration facts that differ; drivers and kernels first, then by number of nodes. A fact
    that was read for the first time is no change."""
    pairs: dict[tuple[str, int, int], list[str]] = {}
    for section, name, old, new in connection.execute(
        _FACTS, {"a": before, "b": now, "host": host}
    ):
        if old is not None and old != new:
            pairs.setdefault((section, old, new), []).append(name)
    bodies: dict[int, Any] = {}
    hosts: dict[tuple[str, str, str], list[str]] = {}
    values: dict[tuple[str, str, str], tuple[Any, Any]] = {}
    for (section, old, new), members in pairs.items():
        for fact, was, present in changes_of_section(
            section, _body(connection, bodies, old), _body(connection, bodies, new)
        ):
            key = (fact, json.dumps(was, sort_keys=True), json.dumps(present, sort_keys=True))
            values[key] = (was, present)
            hosts.setdefault(key, []).extend(members)
    found = [
        FactChange(key[0], *values[key], tuple(sorted(members, key=natural)))
        for key, members in hosts.items()
    ]
    return tuple(
        sorted(
            found, key=lambda one: (_section(one.fact), -len(one.hosts), one.fact, one.hosts[:1])
        )
    )


def _section(fact: str) -> int:
    name = fact.partition(".")[0]
    return SECTIONS.index(name) if name in SECTIONS else len(SECTIONS)


def _body(connection: sqlite3.Connection, bodies: dict[int, Any], content: int) -> Any:
    """The content as plain values. A content that this program did not write is read as empty, so
    every fact of it is a change."""
    if content not in bodies:
        (packed,) = connection.execute(
            "SELECT body FROM contents WHERE id = ?", (content,)
        ).fetchone()
        bodies[content] = unpack_section(packed)
    return bodies[content]
