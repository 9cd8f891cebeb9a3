"""Counts what the nodes of a group answer to the rules that compare nodes.

In a large fleet this is done for every kind of node, group and rule. Kinds of nodes that answer the same rules are therefore taken together, rule by rule:
where all give one answer, which is nearly everywhere, their nodes are counted at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from unhang.audit.judge.groups import Ballot, Compared, add_votes
from unhang.audit.judge.memory import BundleVerdicts


class _Row(NamedTuple):
    """The answers of one kind of nodes, and these nodes. position: among all rows."""

    position: int
    answers: tuple[Compared, ...]
    hosts: list[str]


def ballots_of(votes: Iterable[tuple[BundleVerdicts, list[str]]], group: str) -> dict[int, Ballot]:
    """Rule -> its ballot, hosts in the order of the votes. votes: verdicts that nodes share, and these nodes."""
    alike: dict[tuple[int, ...], list[_Row]] = {}  # rules -> rows that answer these and no others
    for position, (outcome, hosts) in enumerate(votes):
        if outcome.compared:
            numbers, answers = zip(*outcome.compared, strict=True)
            alike.setdefault(numbers, []).append(_Row(position, answers, hosts))
    columns: dict[int, list[tuple[list[_Row], tuple[Compared, ...]]]] = {}
    for numbers, rows in alike.items():
        for number, column in zip(numbers, zip(*[row.answers for row in rows], strict=True), strict=True):
            columns.setdefault(number, []).append((rows, column))
    everybody: dict[tuple[int, ...], list[str]] = {}
    return {number: _ballot(found, everybody, group) for number, found in columns.items()}


def _ballot(found: list[tuple[list[_Row], tuple[Compared, ...]]], everybody: dict[tuple[int, ...], list[str]], group: str) -> Ballot:
    """The ballot of one rule. everybody: which rows -> all their hosts in order, once for all rules that these rows answer."""
    ballot, first = Ballot(group), found[0][1][0]
    if {id(answer) for _, column in found for answer in column} == {id(first)}:
        key = tuple([id(rows) for rows, _ in found])
        if key not in everybody:
            everybody[key] = [host for row in sorted([row for rows, _ in found for row in rows], key=lambda row: row.position) for host in row.hosts]
        add_votes(ballot, everybody[key], first)
        return ballot
    answered = [(row.position, answer, row.hosts) for rows, column in found for row, answer in zip(rows, column, strict=True)]
    for _, answer, hosts in sorted(answered, key=lambda one: one[0]):
        add_votes(ballot, hosts, answer)
    return ballot
