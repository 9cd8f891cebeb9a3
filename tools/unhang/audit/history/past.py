"""The changes of a node, or of a rule's findings, over the runs that are there: a row of
comparisons, each of a run with the one before it of the same inventory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.audit.history.changes import (
    NEW,
    Changes,
    FactChange,
    FoundChange,
    changes_between,
    finding_changes,
)
from unhang.audit.history.runs import PastRun, earlier_of, past_run, past_runs
from unhang.audit.history.verdicts import Place, Verdict, read_verdicts
from unhang.audit.report.folding import item_label
from unhang.core.errors import UserError
from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import brief, visible

MOST_RUNS = 30  # that are compared
MOST_LINES = 8  # of a node on the page


HOLDS = "holds since"


@dataclass(frozen=True)
class Event:
    """What a run found to be different, or since which run a finding holds. what: a word of
    changes.WORDS, fact, or HOLDS. together: facts
    that changed on the same nodes in the same run, with the number of nodes that have the change
    and not the finding."""

    run: str
    started: str
    what: str
    text: str
    hosts: tuple[str, ...]
    together: tuple[str, ...] = ()


def steps(runs: Sequence[PastRun]) -> Iterator[tuple[PastRun, PastRun]]:
    """(the run before, run) of each inventory, oldest first."""
    for place, run in enumerate(runs):
        if before := earlier_of(run, runs[:place]):
            yield before, run


def events_of_host(runs: Sequence[PastRun], host: str) -> list[Event]:
    """What happened to a node, oldest first; what was found at the first look is no event."""
    asked = [run for run in runs if host in run.hosts]
    found = []
    for before, now in itertools.pairwise(asked):
        changes = changes_between(before, now, {host})
        texts = [("fact", _fact(one)) for one in changes.facts]
        texts += [(one.change, _finding(one)) for one in changes.findings]
        found += [Event(now.id, now.started, what, text, (host,)) for what, text in texts]
    return [*found, *_holding(asked, host)]


def _holding(asked: Sequence[PastRun], host: str) -> list[Event]:
    """What was found on a node in the last run, with the first run of those that found it without a
    break."""
    since: dict[Place, tuple[PastRun, Verdict]] = {}
    for run in asked:
        since = {
            place: (since[place][0] if place in since else run, one)
            for place, one in read_verdicts(run).found.items()
            if place.host == host
        }
    return [
        Event(run.id, run.started, HOLDS, f"{one.severity}: {one.title} [{place.rule}]", (host,))
        for place, (run, one) in since.items()
    ]


def events_of_rule(runs: Sequence[PastRun], rule: str) -> list[Event]:
    """When findings of a rule began and ended, oldest first, and which facts changed with them."""
    found = []
    for before, now in steps(runs):
        rows = [one for one in finding_changes(before, now) if one.rule == rule]
        began = any(one.change == NEW for one in rows)
        changes = changes_between(before, now) if began else Changes((), ())
        found += [
            Event(
                now.id, now.started, one.change, _finding(one), one.hosts, _together(one, changes)
            )
            for one in rows
        ]
    return found


def _fact(one: FactChange) -> str:
    return f"{one.fact}: {brief(one.before)} -> {brief(one.now)}"


def _finding(one: FoundChange) -> str:
    place = f": {item_label(one.place)}" if one.place else ""
    return f"{one.severity}: {one.title}{place} [{one.rule}]"


def _together(one: FoundChange, changes: Changes) -> tuple[str, ...]:
    """Drivers and kernels first, as fact_changes has them."""
    mine = frozenset(one.hosts)
    return tuple(
        f"{_fact(fact)} (on {len(mine & {*fact.hosts})} of {len(mine)}, and on"
        f" {len({*fact.hosts} - mine)} without the finding)"
        for fact in changes.facts
        if one.change == NEW and not mine.isdisjoint(fact.hosts)
    )


def names(runs: Sequence[PastRun]) -> tuple[set[str], set[str]]:
    """The hosts of these runs, and the rules that found something in one of them. Raises
    UserError."""
    hosts = {host for run in runs for host in run.hosts}
    return hosts, {place.rule for run in runs for place in read_verdicts(run).found}


def node_pasts(folder: Path) -> dict[str, tuple[str, ...]]:
    """host -> lines for a run's page: what changed since the run before it of its inventory; {}
    where there is none."""
    try:
        now = past_run(folder)
        before = earlier_of(now, past_runs(folder)) if now.judged else None
        changes = changes_between(before, now) if before else Changes((), ())
    except UserError:
        return {}  # commands that compare runs report it
    lines: dict[str, list[str]] = {}
    rows: list[tuple[str, Sequence[str]]] = [
        (f"{visible(one.fact, 120)}: {_value(one.before)} -> {_value(one.now)}", one.hosts)
        for one in changes.facts
    ]
    rows += [(f"{one.change}: {_text(_finding(one), 240)}", one.hosts) for one in changes.findings]
    for line, hosts in rows:
        for host in hosts:
            lines.setdefault(host, []).append(line)
    return {host: tuple(of_host[:MOST_LINES]) for host, of_host in lines.items()}


def _value(value: Any) -> str:
    return _text(brief(value), 60)


def _text(text: str, limit: int) -> str:
    return visible(without_secrets(text), limit)
