"""Ends the spans that a run shows to have ended, and begins new ones. Spans of facts that a run
could not read stay open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unhang.audit.history.packed import pack_section
from unhang.audit.history.stored import NOTHING, Problem, StoredNode, Verdicts

# why a finding ended: it was resolved; its rule is no longer judged
GONE, NOT_JUDGED = "gone", "rule gone"
NODE_SCOPE = "node"
_NO_DIGEST = b""  # marks a section that a node no longer has
_FACTS_THAT_HOLD = (
    "SELECT facts.id, host, section, digest FROM facts JOIN contents ON contents.id = content WHERE"
    " to_run IS NULL"
)
_FINDINGS_THAT_HOLD = """
SELECT findings.id, findings.host, problem, hosts.name, rules.name, scope, visits.status, from_run
FROM findings JOIN problems ON problems.id = problem JOIN rules ON rules.id = rule JOIN hosts ON hosts.id = findings.host
LEFT JOIN visits ON visits.run = from_run AND visits.host = findings.host WHERE to_run IS NULL
"""  # noqa: E501
_ASKED_AGAIN = """
SELECT past.seq FROM runs AS past JOIN runs AS now ON now.seq = :run
WHERE past.seq IN (SELECT from_run FROM findings WHERE to_run IS NULL)
  AND (past.inventory IS now.inventory AND (now.host_limit IS NULL OR now.host_limit = past.host_limit)
       OR NOT EXISTS (SELECT 1 FROM visits WHERE run = past.seq AND host NOT IN (SELECT host FROM visits WHERE run = :run)))
"""  # noqa: E501


@dataclass(frozen=True)
class Held:
    """A finding that existed until now. status: of the node in the run that found it first, None if
    it was not read; asked_again: see asked_again()."""

    host: str
    rule: str
    scope: str
    status: str | None
    asked_again: bool


def store_facts(
    connection: sqlite3.Connection,
    run: int,
    hosts: Mapping[str, int],
    nodes: Mapping[str, StoredNode],
    bodies: Mapping[bytes, bytes],
) -> None:
    """Sections of nodes. hosts: name -> number; bodies: packed text of contents that may be new."""
    holding = {
        (host, section): (number, digest)
        for number, host, section, digest in connection.execute(_FACTS_THAT_HOLD)
    }
    ended: list[tuple[int, int]] = []
    begun: list[tuple[int, str, bytes]] = []
    for name, node in nodes.items():
        host = hosts[name]
        for section, digest in node.digests.items():
            number, held = holding.get((host, section), (0, _NO_DIGEST))
            if (digest or _NO_DIGEST) != held:
                ended += [(run, number)] if number else []
                begun.append((host, section, digest or _NO_DIGEST))
    connection.executemany("UPDATE facts SET to_run = ? WHERE id = ?", ended)
    contents = _content_ids(connection, {digest for _, _, digest in begun}, bodies)
    rows = ((host, section, contents[digest], run) for host, section, digest in begun)
    connection.executemany(
        "INSERT INTO facts (host, section, content, from_run) VALUES (?, ?, ?, ?)", rows
    )


def _content_ids(
    connection: sqlite3.Connection, digests: set[bytes], bodies: Mapping[bytes, bytes]
) -> dict[bytes, int]:
    """Ids of contents; one that the history already has needs no body, because contents are never
    removed."""
    packed = {_NO_DIGEST: pack_section(NOTHING), **bodies}
    connection.executemany(
        "INSERT OR IGNORE INTO contents (digest, body) VALUES (?, ?)",
        ((one, packed[one]) for one in digests if one in packed),
    )
    return {
        one: connection.execute("SELECT id FROM contents WHERE digest = ?", (one,)).fetchone()[0]
        for one in digests
    }


def store_findings(
    connection: sqlite3.Connection,
    run: int,
    hosts: Mapping[str, int],
    nodes: Mapping[str, StoredNode],
    verdicts: Verdicts,
) -> None:
    """What the judge found. hosts: name -> number, with "" for findings that name no node."""
    problems = _problem_ids(connection, verdicts)
    now = {
        (hosts[host], problems[problem]): found for (host, problem), found in verdicts.found.items()
    }
    again = asked_again(connection, run)
    ended: list[tuple[int, str, int]] = []
    for number, host, problem, name, rule, scope, status, found_in in connection.execute(
        _FINDINGS_THAT_HOLD
    ):
        held = Held(name, rule, scope, status, found_in in again)
        if now.pop((host, problem), None) is None and (why := why_ended(held, nodes, verdicts)):
            ended.append((run, why, number))
    connection.executemany("UPDATE findings SET to_run = ?, ended = ? WHERE id = ?", ended)
    rows = ((host, problem, found, run) for (host, problem), found in now.items())
    connection.executemany(
        "INSERT INTO findings (host, problem, found, from_run) VALUES (?, ?, ?, ?)", rows
    )


def asked_again(connection: sqlite3.Connection, run: int) -> frozenset[int]:
    """The runs with present findings whose nodes this run read again: all of these nodes, or the
    same inventory without a limit or with the same one. A run of another inventory, such as this
    machine or a second cluster, proves nothing about their groups."""
    return frozenset(number for (number,) in connection.execute(_ASKED_AGAIN, {"run": run}))


def why_ended(held: Held, nodes: Mapping[str, StoredNode], verdicts: Verdicts) -> str | None:
    """The reason why a finding that this run did not make has ended; None if the run did not check
    it. A comparison of nodes was checked if its nodes were read again."""
    if held.rule in verdicts.stopped or (held.host, held.rule) in verdicts.unknown:
        return None
    if held.scope != NODE_SCOPE:
        return _why_it_ended(held, verdicts) if held.asked_again else None
    node = nodes.get(held.host)
    if node is None:
        return None
    about_reading = held.status is not None and not StoredNode(held.status).read
    return _why_it_ended(held, verdicts) if node.read or about_reading else None


def _why_it_ended(held: Held, verdicts: Verdicts) -> str:
    return GONE if held.rule in verdicts.judged else NOT_JUDGED


def _problem_ids(connection: sqlite3.Connection, verdicts: Verdicts) -> dict[Problem, int]:
    connection.executemany(
        "INSERT INTO rules (name, title) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET title ="
        " excluded.title",
        verdicts.titles.items(),
    )
    rules = dict(connection.execute("SELECT name, id FROM rules"))
    wanted = {
        problem: (
            rules[problem.rule],
            problem.severity,
            problem.verdict,
            problem.scope,
            problem.place,
            problem.waiver,
        )
        for _, problem in verdicts.found
    }
    connection.executemany(
        "INSERT OR IGNORE INTO problems (rule, severity, verdict, scope, place, waiver) VALUES (?,"
        " ?, ?, ?, ?, ?)",
        wanted.values(),
    )
    return dict(_numbered(connection, wanted))


def _numbered(
    connection: sqlite3.Connection, wanted: Mapping[Problem, tuple[int | str, ...]]
) -> Iterator[tuple[Problem, int]]:
    for problem, columns in wanted.items():
        row = connection.execute(
            "SELECT id FROM problems WHERE rule = ? AND severity = ? AND verdict = ? AND scope = ?"
            " AND place = ? AND waiver = ?",
            columns,
        ).fetchone()
        yield problem, int(row[0])
