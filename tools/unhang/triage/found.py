"""The findings of a run as triage needs them: few fields, whether they come from the judge or from a findings document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from unhang.judge.findings import Entry
from unhang.judge.groups import GroupJudged


class Found(NamedTuple):
    """One failure. number: its place in `findings`; hosts: those that it is about; apart: group and fleet scope, the hosts of each value."""

    number: int
    rule: str
    title: str
    severity: str
    scope: str
    hosts: tuple[str, ...]
    where: Mapping[str, Any]
    remedy: Mapping[str, Any]
    apart: tuple[frozenset[str], ...] = ()


def found_of_entries(entries: Sequence[Entry]) -> Iterator[Found]:
    """The failures among the judge's entries, which are in the order of findings.json."""
    for number, entry in enumerate(entries):
        if entry.verdict != "fail":
            continue
        row, judged = entry.rule.row, entry.judged
        remedy = {**row["remedy"], "person": entry.words["remedy.person"]} if "remedy.person" in entry.words else row["remedy"]
        grouped = isinstance(judged, GroupJudged)
        hosts = judged.hosts if isinstance(judged, GroupJudged) else (str(entry.host),)
        apart = _apart(judged.comparison) if isinstance(judged, GroupJudged) else ()
        yield Found(number, entry.rule.id, row["title"], entry.rule.severity, entry.rule.scope, hosts, {} if grouped else entry.where, remedy, apart)


def found_of_document(findings: Mapping[str, Any]) -> Iterator[Found]:
    """The failures of a findings document (schema unhang/findings/1)."""
    for number, one in enumerate(findings.get("findings") or []):
        if one.get("verdict") != "fail":
            continue
        hosts = one.get("hosts") or ([one["host"]] if one.get("host") is not None else [])
        remedy = one.get("remedy") if isinstance(one.get("remedy"), Mapping) else {}
        yield Found(
            number, str(one.get("rule")), str(one.get("title") or "?"), str(one.get("severity")), str(one.get("scope", "node")),
            tuple(str(host) for host in hosts), one.get("where") or {}, remedy, _apart(one.get("comparison")),
        )  # fmt: skip


def _apart(comparison: Mapping[str, Any] | None) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(row.get("hosts") or ()) for row in (comparison or {}).get("counts") or ())
