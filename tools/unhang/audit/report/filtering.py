"""Narrows a findings document to hosts, rules and severities, counts included. Document in,
document out, for every renderer."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.run.findings import OF_POLICY, hosts_of
from unhang.judge.rules.rules import SEVERITIES


@dataclass(frozen=True)
class Filter:
    """hosts: None for all; rules: ids, with wildcards; severities: of findings; owners: who acts;
    all empty for all. typed: as the user wrote it."""

    hosts: frozenset[str] | None = None
    rules: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    typed: str = ""

    def takes(self, finding: Mapping[str, Any]) -> bool:
        """Whether the filter keeps a finding."""
        if self.severities and finding["severity"] not in self.severities:
            return False
        if self.owners and finding.get("owner", DEFAULT_OWNER) not in self.owners:
            return False
        if self.rules and not any(
            fnmatch.fnmatchcase(str(finding["rule"]), one) for one in self.rules
        ):
            return False
        hosts = hosts_of(finding)
        # each node has the policy
        return (
            self.hosts is None
            or bool(self.hosts.intersection(hosts))
            or (not hosts and finding["rule"] in OF_POLICY)
        )


def narrowed(findings: Mapping[str, Any], by: Filter) -> dict[str, Any]:
    """The document with the findings that the filter keeps, and the causes, each as it was judged.
    host_count and nodes are of the requested hosts, node_verdicts of those on which a kept finding
    is. The totals omit checks that passed or did not apply, because they are not known by host."""
    places = [place for place, finding in enumerate(findings["findings"]) if by.takes(finding)]
    kept = [_on(findings["findings"][place], by.hosts) for place in places]
    moved = {old: new for new, old in enumerate(places)}
    causes = [
        one
        for cause in findings["causes"]
        if (one := _cause(cause, moved, findings["findings"], by))
    ]
    asked = {
        verdict: _among(hosts, by.hosts) for verdict, hosts in findings["node_verdicts"].items()
    }
    hosts, unread = sum(map(len, asked.values())), asked["unread"]
    open_ones = _without_owner(findings["findings"], unread) if by.owners else unread
    verdicts = {
        verdict: _among(
            among, _failing(kept, open_ones) if by.severities or by.owners or by.rules else None
        )
        for verdict, among in asked.items()
    }
    return {
        **findings,
        "filter": by.typed,
        "host_count": hosts,
        "nodes": findings["nodes"] if by.hosts is None else {"ok": hosts - len(unread)},
        "totals": _totals(kept),
        "totals_by_severity": _by_severity(kept),
        "totals_by_rule": {rule: _totals(among) for rule, among in _by_rule(kept).items()},
        "node_verdicts": verdicts,
        "without_gpus": {
            host: applied
            for host, applied in (findings.get("without_gpus") or {}).items()
            if by.hosts is None or host in by.hosts
        },
        "causes": causes,
        "by_hand": [moved[place] for place in findings.get("by_hand") or () if place in moved],
        "findings": kept,
    }


def _on(finding: Mapping[str, Any], wanted: Collection[str] | None) -> Mapping[str, Any]:
    """A comparison of nodes with the requested ones as its hosts; what it compared stays in its
    text."""
    return (
        finding
        if wanted is None or not finding.get("hosts")
        else {**finding, "hosts": _among(finding["hosts"], wanted)}
    )


def _failing(kept: Sequence[Mapping[str, Any]], unread: Sequence[str]) -> frozenset[str]:
    """Hosts with a failure. A node that was not read stays, because it may have what is asked
    for."""
    return frozenset(unread).union(*(hosts_of(one) for one in kept if one["verdict"] == "fail"))


def _without_owner(findings: Sequence[Mapping[str, Any]], unread: Sequence[str]) -> list[str]:
    """Nodes that were not read, and of which no finding says who acts."""
    owned = {host for one in findings if one["verdict"] == "fail" for host in hosts_of(one)}
    return [host for host in unread if host not in owned]


def _by_rule(kept: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in kept:
        found.setdefault(one["rule"], []).append(one)
    return found


def _totals(kept: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {
        verdict: sum(one["verdict"] == verdict for one in kept)
        for verdict in ("fail", "unknown", "waived")
    }


def _by_severity(kept: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter(one["severity"] for one in kept if one["verdict"] == "fail")
    return {severity: counts[severity] for severity in SEVERITIES if counts[severity]}


def _cause(
    cause: Mapping[str, Any],
    places: Mapping[int, int],
    findings: Sequence[Mapping[str, Any]],
    by: Filter,
) -> dict[str, Any] | None:
    """A cause with its remaining findings and nodes; None if there are none, or it is of another
    severity: what it explains stays among the findings."""
    kept = [place for place in cause["findings"] if place in places]
    nodes = _among(cause["nodes"], by.hosts)
    if (
        not kept
        or (cause["nodes"] and not nodes)
        or (by.severities and cause["severity"] not in by.severities)
    ):
        return None
    explains = sorted({findings[place]["rule"] for place in kept} - {cause["rule"]})
    devices = [row for row in cause["devices"] if by.hosts is None or row["host"] in by.hosts]
    return {
        **cause,
        "nodes": nodes,
        "findings": [places[place] for place in kept],
        "explains": explains,
        "devices": devices,
    }


def _among(hosts: Sequence[str], wanted: Collection[str] | None) -> list[str]:
    return list(hosts) if wanted is None else [host for host in hosts if host in wanted]
