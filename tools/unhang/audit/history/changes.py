"""What changed from one run to another. Hosts with the same change share a row."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unhang.audit.history.configuration import OF_ANY_MACHINE, Configuration, read_configurations
from unhang.audit.history.fact_changes import changes_of_section
from unhang.audit.history.runs import PastRun
from unhang.audit.history.verdicts import NODE_SCOPE, Place, Verdict, Verdicts, read_verdicts
from unhang.core.run.run_input import natural
from unhang.core.strict_json import parse_strictly
from unhang.judge.rules.rules import SEVERITIES

NEW, CHANGED, WAIVED, RESOLVED, NOT_JUDGED = "new", "changed", "waived", "resolved", "not judged"
WORDS = (NEW, CHANGED, WAIVED, RESOLVED, NOT_JUDGED)
# Order of sections: a change of the driver or the kernel explains most new findings; then
# libraries; then the rest.
SECTIONS = ("driver", "kernel", "fabric_manager", "cuda", "nccl", "torch", "packages")


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
    """only_now, only_before: nodes that one of the two runs alone asked; other_machines: names such
    as `localhost` that mean another machine now, of which nothing is compared."""

    findings: tuple[FoundChange, ...]
    facts: tuple[FactChange, ...]
    only_now: tuple[str, ...] = ()
    only_before: tuple[str, ...] = ()
    other_machines: tuple[str, ...] = ()


def changes_between(before: PastRun, now: PastRun, hosts: Container[str] | None = None) -> Changes:
    """A node that the later run did not read is unchanged. hosts: only these, None for all. Raises
    UserError for a run that was not judged."""
    both = before.hosts & now.hosts
    verdicts = read_verdicts(before), read_verdicts(now)
    asked = frozenset(host for host in both if hosts is None or host in hosts)
    texts: dict[bytes, bytes] = {}
    old, new = (
        dict(read_configurations(run, asked - found.unread, texts))
        for run, found in zip((before, now), verdicts, strict=True)
    )
    others = _other_machines(old, new)
    facts = fact_changes({h: old[h] for h in old.keys() - others}, new)
    findings = [
        one
        for one in _finding_changes(*verdicts, _groups_asked_again(before, now), others)
        if hosts is None or not asked.isdisjoint(one.hosts)
    ]
    return Changes(
        tuple(findings),
        facts,
        *(_in_order(one) for one in (now.hosts - both, before.hosts - both, others)),
    )


def _other_machines(
    old: Mapping[str, Configuration], new: Mapping[str, Configuration]
) -> frozenset[str]:
    ids = {host: (old[host].machine_id, new[host].machine_id) for host in old.keys() & new.keys()}
    return frozenset(
        host for host, (was, is_now) in ids.items()
        if host in OF_ANY_MACHINE and was and is_now and was != is_now
    )  # fmt: skip


def _in_order(hosts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(hosts, key=natural))


def finding_changes(before: PastRun, now: PastRun) -> tuple[FoundChange, ...]:
    """Findings that began, ended or changed; the most severe first. Raises UserError."""
    verdicts = read_verdicts(before), read_verdicts(now)
    return _finding_changes(*verdicts, _groups_asked_again(before, now))


def _finding_changes(
    old: Verdicts, new: Verdicts, groups_again: bool, without: Container[str] = ()
) -> tuple[FoundChange, ...]:
    """without: hosts to leave out."""
    groups: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for place in old.found.keys() | new.found.keys():
        was, present = old.found.get(place), new.found.get(place)
        word = _begun(was, present) if present else _ended(place, was, old, new, groups_again)
        shown = present or was
        if word and shown and place.host not in without:
            key = (word, shown.severity, place.rule, shown.title, place.thing)
            groups.setdefault(key, []).append((place.host, shown.found))
    found = [
        FoundChange(word, severity, rule, title, _thing(thing), min(members)[1], hosts)
        for (word, severity, rule, title, thing), members in groups.items()
        for hosts in [_in_order(host for host, _ in members)]
    ]
    return tuple(sorted(found, key=_rank))


def _groups_asked_again(before: PastRun, now: PastRun) -> bool:
    """Whether a comparison of nodes was made again. A run of another inventory, such as this
    machine or a second cluster, says nothing about the groups of this one."""
    same = before.inventory == now.inventory and now.limit in (None, before.limit)
    return same or before.hosts <= now.hosts


def _begun(was: Verdict | None, present: Verdict) -> str | None:
    """One of WORDS; None for what is as it was."""
    if was and all(
        getattr(was, name) == getattr(present, name) for name in ("severity", "verdict", "waiver")
    ):
        return None
    return WAIVED if present.verdict == "waived" else CHANGED if was else NEW


def _ended(
    place: Place, was: Verdict | None, old: Verdicts, new: Verdicts, groups_again: bool
) -> str | None:
    """One of WORDS; None if the later run did not check it. A node that could not be read has
    resolved nothing, unless that is what was found."""
    if (
        was is None
        or place.rule in new.stopped
        or (place.host, place.rule) in new.unknown
        or not (groups_again if was.scope != NODE_SCOPE else place.host in new.asked)
        or (place.host in new.unread and place.host not in old.unread)
    ):
        return None
    return RESOLVED if place.rule in new.judged else NOT_JUDGED


def _thing(text: str) -> dict[str, Any]:
    found = parse_strictly(text.encode())
    return found if isinstance(found, dict) else {}


def _rank(one: FoundChange) -> tuple[Any, ...]:
    severity = SEVERITIES.index(one.severity) if one.severity in SEVERITIES else len(SEVERITIES)
    return WORDS.index(one.change), severity, -len(one.hosts), one.rule, str(one.place)


def fact_changes(
    old: Mapping[str, Configuration], new: Mapping[str, Configuration]
) -> tuple[FactChange, ...]:
    """Configuration facts that differ; drivers and kernels first, then by number of nodes. A fact
    that was read for the first time is no change."""
    pairs: dict[tuple[str, bytes, bytes], list[str]] = {}
    for host in old.keys() & new.keys():
        before, now = old[host].sections, new[host].sections
        for section in before.keys() & now.keys():
            if before[section] != now[section]:
                pairs.setdefault((section, before[section], now[section]), []).append(host)
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for (section, was, present), members in pairs.items():
        for fact, *values in changes_of_section(
            section, *(parse_strictly(text, half_characters=True) for text in (was, present))
        ):
            one, other = (json.dumps(value, sort_keys=True) for value in values)
            hosts.setdefault((fact, one, other), []).extend(members)
    found = [
        FactChange(fact, json.loads(was), json.loads(present), _in_order(members))
        for (fact, was, present), members in hosts.items()
    ]
    return tuple(
        sorted(
            found, key=lambda one: (_section(one.fact), -len(one.hosts), one.fact, one.hosts[:1])
        )
    )


def _section(fact: str) -> int:
    name = fact.partition(".")[0]
    return SECTIONS.index(name) if name in SECTIONS else len(SECTIONS)
