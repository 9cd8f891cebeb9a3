"""Writes docs/incidents.md from the catalogue: the result for each known incident. `make generated`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from unhang.audit.judge.compiled_catalogue import Catalogue, load_catalogue

HEAD = """# Incidents

What is known to have broken multi-GPU training, by the id under which it was collected, and what became of it. This page is written from the catalogue
(`make generated`); a test fails when it is stale or an incident is missing.

- **rule**: the audit decides it from the facts of a node, its policy or a group of nodes.
- **entry**: the node's facts cannot decide it. The reason stands beside it; diagnosis and `unhang explain` know it.
  Known to the *job* (its code), its *log*, the *firmware*, or only as an *action* that somebody takes.

Confidence is that of the source: *documented* by a vendor, said by *maintainers*, *reported* by users, or *inferred*.

"""
FRESH = """
## Met after the catalogue was written

Incidents that were collected later, and judged on the rules of the commit that is named before a rule was written for them: the nodes that they
make stand in `tests/fixtures/incidents`, as a healthy node and what changes in it. *Found*: a finding names the fault, at most one step quieter
than it deserves. *Half*: a finding points near it, or too quietly. *Not*: none does. Those that a node cannot show are not counted. All that have
a rule by now are a test. A batch that was collected blind may hold incidents that the catalogue had met before, under another name: those are counted
apart, and the measure is the last three columns.

"""
SECOND = """
## What a second look had against the catalogue

Forty rules drawn by lot, whose claims were checked against other sources (24 stood), and a healthy 8 × H200 changed in sixty ways, each line with what was
wrong and how it is now. The nodes are in `tests/fixtures/incidents/second-look.yml`, and a test judges them.

| what: how it was | how it is now | rules |
| --- | --- | --- |
"""
FRESH_TABLE = "| incident | at first sight | known now as, or why not |\n| --- | --- | --- |\n"
TABLE = "| incident | what became of it | what it is | decided by, or why not | confidence |\n| --- | --- | --- | --- | --- |\n"


def render_incidents(catalogue: Catalogue) -> str:
    """The page. One line for each pair of incident and row."""
    lines = []
    for rule in catalogue.rules:
        sections = sorted({path[0] for path in rule.decision_reads})
        reads = ", ".join(f"`{name}`" for name in sections)
        decided = f"{'' if rule.scope == 'node' else 'a group of nodes: '}{reads}"
        lines += [_line(incident, f"rule `{rule.id}`", rule.row, decided) for incident in rule.row.get("incidents", ())]
    for row in catalogue.entries:
        lines += [_line(incident, f"entry `{row['id']}`", row, f"known to the {row['known_to']}: {row['why']}") for incident in row.get("incidents", ())]
    lines.sort()
    count = len({line.split("|")[1] for line in lines})
    return (
        f"{HEAD}{count} incidents, {len(lines)} rows.\n\n{TABLE}"
        + "\n".join(lines)
        + "\n"
        + _fresh(catalogue.tables.get("fresh_incidents", {}))
        + _second(catalogue.tables.get("second_look", {}))
    )


def _fresh(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The results of each batch at first sight, and its incidents one by one; nothing without a batch."""
    batches: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows.values():
        batches.setdefault(row["batch"], []).append(row)
    if not batches:
        return ""
    parts = [FRESH, "| batch | judged at | shown by a node | found | half | not | never met before: found | half | not |\n| " + "--- | " * 8 + "--- |\n"]
    parts += [_counted(number, batch) for number, batch in sorted(batches.items())]
    parts += [_learnt(number, batch) for number, batch in sorted(batches.items()) if all(row.get("after_learning") for row in batch)]
    for number, batch in sorted(batches.items()):
        parts.append(f"\n### Batch {number}\n\n{FRESH_TABLE}")
        parts += [f"| {row['incident']}: {row['what']} | {_sights(row)} | {_known(row)} |\n" for row in batch]
    return "".join(parts)


def _second(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Each line of the second look; nothing without any."""
    lines = [f"| {row['line']}: {row['was']} | {row['now']} | {', '.join(f'`{rule}`' for rule in row['rules'])} |\n" for row in rows.values()]
    return SECOND + "".join(lines) if lines else ""


def _counted(number: int, batch: list[Mapping[str, Any]]) -> str:
    count = _by_sight(batch)
    noted = any(row.get("met_as") for row in batch)
    never_met = _by_sight([row for row in batch if not row.get("met_as")]) if noted else ["not noted", "", ""]
    return f"| {number} | {batch[0]['judged_at']} | {sum(count)} of {len(batch)} | {' | '.join(map(str, count))} | {' | '.join(map(str, never_met))} |\n"


def _learnt(number: int, batch: list[Mapping[str, Any]]) -> str:
    """A paragraph with the second number of a batch: the same incidents once the catalogue had learnt from them."""
    count = _by_sight(batch, "after_learning")
    words = f"{count[0]} found, {count[1]} half, {count[2]} not, of {sum(count)} that a node shows then"
    return f"\nBatch {number} after learning, which does not measure the result on new incidents: {words}.\n"


def _sights(row: Mapping[str, Any]) -> str:
    """The result at first sight, and the change by learning."""
    later = row.get("after_learning") or row["first_sight"]
    return str(row["first_sight"]) if later == row["first_sight"] else f"{row['first_sight']}; {later} after learning"


def _by_sight(rows: list[Mapping[str, Any]], key: str = "first_sight") -> list[int]:
    """Numbers of incidents that were found, half found and not found: at first sight, or by another key of the rows."""
    return [sum(row[key] == word for row in rows) for word in ("found", "half", "not")]


def _known(row: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in row["became"]) or str(row["why"])


def _line(incident: str, became: str, row: Mapping[str, Any], decided: str) -> str:
    cells = (incident, became, row["title"], decided, row["confidence"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(render_incidents(load_catalogue()))
