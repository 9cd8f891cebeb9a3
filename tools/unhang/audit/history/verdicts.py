"""What was found in a run, in the form in which runs are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from unhang.audit.history.runs import PastRun
from unhang.core.errors import UserError
from unhang.core.run.findings import blameless_hosts
from unhang.core.run.record import FINDINGS, Findings, read_findings_record
from unhang.core.secrets_in_text import cut_without_secrets
from unhang.judge.rules.rules import SEVERITIES

LONGEST_FOUND = 300
NODE_SCOPE = "node"
# faults.events[3], a fact and not a file
_IN_A_LIST = re.compile(r"[a-z_][a-z0-9_.]*\[[0-9]{1,9}\].*", re.DOTALL)


class Place(NamedTuple):
    """Where a finding is, over all runs. thing: JSON of the lasting name of the device or file."""

    host: str
    rule: str
    thing: str


@dataclass(frozen=True)
class Verdict:
    """A finding on one node, without the parts that change from run to run. waiver: JSON."""

    severity: str
    verdict: str
    scope: str
    waiver: str
    title: str
    found: str


@dataclass(frozen=True)
class Verdicts:
    """The judge's results for a run. A host named "" is the whole fleet."""

    asked: frozenset[str]  # hosts
    found: Mapping[Place, Verdict]
    unknown: frozenset[tuple[str, str]]  # (host, rule) without a verdict
    unread: frozenset[str]
    judged: frozenset[str]  # rules
    stopped: frozenset[str]


def read_verdicts(run: PastRun) -> Verdicts:
    """Raises UserError for a run that was not judged, and for an invalid file."""
    found = read_findings_record(run.folder)
    if found.run.id != run.id:
        raise UserError(
            f"{run.folder / FINDINGS} has the findings of run {found.run.id[:80]!r}, not of"
            f" {run.id}; next: unhang judge {run.folder}"
        )
    return _verdicts(found, run.hosts)


def _verdicts(given: Findings, asked: frozenset[str]) -> Verdicts:
    found: dict[Place, Verdict] = {}
    unknown: set[tuple[str, str]] = set()
    blameless = blameless_hosts(given.node_verdicts)
    for one in given.findings:
        hosts = one.about() or [""]
        # of a comparison not the blameless hosts, which only the fault of another one sets apart
        if one.verdict == "fail" and one.severity != SEVERITIES[-1]:
            hosts = [host for host in hosts if host not in blameless]
        if one.verdict == "unknown":
            unknown.update((host, one.rule) for host in hosts)
            continue
        thing = _canonical(lasting_place(one.where))
        verdict = Verdict(
            one.severity,
            one.verdict,
            one.scope,
            _canonical(one.waiver or {}),
            one.title,
            cut_without_secrets(one.found, LONGEST_FOUND),
        )
        found.update((Place(host, one.rule, thing), verdict) for host in hosts)
    return Verdicts(
        asked,
        found,
        frozenset(unknown),
        frozenset(given.node_verdicts.get("unread", ())),
        frozenset(given.totals_by_rule),
        frozenset(given.catalogue.stopped),
    )


def lasting_place(where: Any) -> Any:
    """The lasting name of a thing over all runs, without its index in a list or its line in a file
    or log, which change with its neighbours."""
    if not isinstance(where, dict):
        return where or {}
    named = {
        name: value
        for name, value in where.items()
        if name != "line" and not (name == "path" and _IN_A_LIST.fullmatch(str(value)))
    }
    return named or where


def _canonical(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
