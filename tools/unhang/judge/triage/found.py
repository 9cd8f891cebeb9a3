"""The failures of a run in the form that triage needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.judge.fleet.bad_waivers import is_of_waivers
from unhang.judge.fleet.findings import Entry
from unhang.judge.rules.found import Found
from unhang.judge.rules.groups import GroupJudged
from unhang.judge.rules.rules import Rule

# Sections of the facts, those nearest the hardware first: of two findings that weigh the same, a
# lost GPU comes before a setting.
_SECTIONS = (
    *(
        "run_status",
        "policy_error",
        "faults",
        "gpus",
        "fabric_manager",
        "interconnect",
        "driver",
        "kernel",
    ),
    *("network", "limits", "nccl", "cuda", "torch", "packages"),
)
_NO_FACTS = ("policy", "tables", "item")
_NAMES_OF_THINGS = ("name", "kind", "error", "model", "index", "uuid", "origin", "scope")
# what is about a waiver comes after everything of equal weight that is about a node
LAST = len(_SECTIONS) + 1


def found_of_entries(entries: Sequence[Entry]) -> Iterator[Found]:
    """The failures among the judge's entries, in the order of findings.json."""
    for number, entry in enumerate(entries):
        if entry.verdict != "fail":
            continue
        row = entry.rule.row
        group = entry.judged if isinstance(entry.judged, GroupJudged) else None
        hosts = group.hosts if group else (str(entry.host),)
        apart = _apart(group.comparison) if group else ()
        where = entry.where if not group or group.part else {}
        owner = row.get("owner", DEFAULT_OWNER)
        of_reading = ("run_status",) in entry.rule.decision_reads
        layer = (
            LAST
            if is_of_waivers(entry.rule)
            else _layer({path[0] for path in entry.rule.decision_reads})
        )
        yield Found(
            number,
            entry.rule.id,
            row["title"],
            entry.severity,
            entry.rule.scope,
            hosts,
            where,
            entry.part("remedy"),
            apart,
            of_reading,
            owner,
            layer,
            bool(row.get("situations")),
            _of_part(group.part, where) if group and group.part else _judged_facts(entry.rule),
            bool(row.get("usual")),
            entry.texts.get("expected", ""),
        )


def _of_part(part: Mapping[str, Any], where: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
    """Paths of the facts that a comparison of parts compares, of several fields those that
    differ."""
    reads = [tuple(one.split(".")) for one in part["reads"]]
    if any(".".join(one).endswith(part["field"]) for one in reads):
        return frozenset(reads)
    names = tuple(one.rpartition(" ")[2] for one in where.get("name", "").split(", "))
    return frozenset(one for one in reads if ".".join(one).endswith(names))


def _judged_facts(rule: Rule) -> frozenset[tuple[str, ...]]:
    """Paths of the facts that a rule judges, without those that only say which thing it is."""
    judged = rule.compare or rule.when
    paths = judged.reads if judged is not None else frozenset()
    return frozenset(
        path for path in paths if path[0] not in _NO_FACTS and path[-1] not in _NAMES_OF_THINGS
    )


def _layer(sections: Collection[str]) -> int:
    return min(
        (place for place, section in enumerate(_SECTIONS) if section in sections),
        default=len(_SECTIONS),
    )


def _apart(comparison: Mapping[str, Any] | None) -> tuple[frozenset[str], ...]:
    return tuple(
        frozenset(row.get("hosts") or ()) for row in (comparison or {}).get("counts") or ()
    )
