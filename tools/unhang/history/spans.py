"""Ends the spans that a run found to hold no longer, and begins new ones. What a run could not read it says nothing of, and its spans stay."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unhang.history.stored import NOTHING, Problem, StoredNode, Verdicts

GONE, NOT_JUDGED = "gone", "rule gone"  # why a finding ended: it is there no longer; its rule is judged no longer
NODE_SCOPE = "node"
_NO_DIGEST = b""  # of a section that a node has no longer
_FACTS_THAT_HOLD = "SELECT facts.id, host, section, digest FROM facts JOIN contents ON contents.id = content WHERE to_run IS NULL"
_FINDINGS_THAT_HOLD = """
SELECT findings.id, findings.host, problem, hosts.name, rules.name, scope, runs.host_limit, visits.status
FROM findings JOIN problems ON problems.id = problem JOIN rules ON rules.id = rule JOIN hosts ON hosts.id = findings.host JOIN runs ON runs.seq = from_run
LEFT JOIN visits ON visits.run = from_run AND visits.host = findings.host WHERE to_run IS NULL
"""


@dataclass(frozen=True)
class Held:
    """A finding that held until now. limit: of the run that found it first; status: how that run had met the node, None when it had not."""

    host: str
    rule: str
    scope: str
    limit: str | None
    status: str | None


def store_facts(connection: sqlite3.Connection, run: int, hosts: Mapping[str, int], nodes: Mapping[str, StoredNode], bodies: Mapping[bytes, bytes]) -> None:
    """Sections of nodes. hosts: name -> number; bodies: packed text of contents that may be new."""
    holding = {(host, section): (number, digest) for number, host, section, digest in connection.execute(_FACTS_THAT_HOLD)}
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
    connection.executemany("INSERT INTO facts (host, section, content, from_run) VALUES (?, ?, ?, ?)", rows)


def _content_ids(connection: sqlite3.Connection, digests: set[bytes], bodies: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """What the history held before needs no body: contents are never removed."""
    packed = {_NO_DIGEST: zlib.compress(NOTHING, 1), **bodies}
    connection.executemany("INSERT OR IGNORE INTO contents (digest, body) VALUES (?, ?)", ((one, packed[one]) for one in digests if one in packed))
    return {one: connection.execute("SELECT id FROM contents WHERE digest = ?", (one,)).fetchone()[0] for one in digests}


def store_findings(connection: sqlite3.Connection, run: int, hosts: Mapping[str, int], nodes: Mapping[str, StoredNode], verdicts: Verdicts) -> None:
    """What the judge found. hosts: name -> number, with "" for findings that name no node."""
    problems = _problem_ids(connection, verdicts)
    now = {(hosts[host], problems[problem]): found for (host, problem), found in verdicts.found.items()}
    (limit,) = connection.execute("SELECT host_limit FROM runs WHERE seq = ?", (run,)).fetchone()
    ended: list[tuple[int, str, int]] = []
    for number, host, problem, *held in connection.execute(_FINDINGS_THAT_HOLD):
        if now.pop((host, problem), None) is None and (why := why_ended(Held(*held), limit, nodes, verdicts)):
            ended.append((run, why, number))
    connection.executemany("UPDATE findings SET to_run = ?, ended = ? WHERE id = ?", ended)
    rows = ((host, problem, found, run) for (host, problem), found in now.items())
    connection.executemany("INSERT INTO findings (host, problem, found, from_run) VALUES (?, ?, ?, ?)", rows)


def why_ended(held: Held, limit: str | None, nodes: Mapping[str, StoredNode], verdicts: Verdicts) -> str | None:
    """Why a finding that this run did not make is over; None while nothing was said of it. limit: that of this run.

    What a rule finds between nodes is over only when as many were asked as then: a run without a limit, or with the same one.
    """
    if held.rule in verdicts.stopped or (held.host, held.rule) in verdicts.unknown:
        return None
    if held.scope != NODE_SCOPE:
        return _why(held, verdicts) if limit is None or limit == held.limit else None
    node = nodes.get(held.host)
    if node is None:
        return None
    about_reading = held.status is not None and not StoredNode(held.status).read
    return _why(held, verdicts) if node.read or about_reading else None


def _why(held: Held, verdicts: Verdicts) -> str:
    return GONE if held.rule in verdicts.judged else NOT_JUDGED


def _problem_ids(connection: sqlite3.Connection, verdicts: Verdicts) -> dict[Problem, int]:
    connection.executemany("INSERT INTO rules (name, title) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET title = excluded.title", verdicts.titles.items())
    rules = dict(connection.execute("SELECT name, id FROM rules"))
    wanted = {problem: (rules[problem.rule], problem.severity, problem.verdict, problem.scope, problem.place, problem.waiver) for _, problem in verdicts.found}
    connection.executemany("INSERT OR IGNORE INTO problems (rule, severity, verdict, scope, place, waiver) VALUES (?, ?, ?, ?, ?, ?)", wanted.values())
    return dict(_numbered(connection, wanted))


def _numbered(connection: sqlite3.Connection, wanted: Mapping[Problem, tuple[int | str, ...]]) -> Iterator[tuple[Problem, int]]:
    for problem, columns in wanted.items():
        row = connection.execute(
            "SELECT id FROM problems WHERE rule = ? AND severity = ? AND verdict = ? AND scope = ? AND place = ? AND waiver = ?", columns
        ).fetchone()
        yield problem, int(row[0])
