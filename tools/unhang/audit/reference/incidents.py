"""The page of incidents: the result for each known incident, from the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.audit.rules.compiled_catalogue import Catalogue

HEAD = """# Incidents

What is known to have broken multi-GPU training, by the id under which it was collected, and what became of it. This page is written from the catalogue
(`make manual`).

- **rule**: the audit decides it from the facts of a node, its policy or a group of nodes.
- **entry**: the node's facts cannot decide it. The reason stands beside it; diagnosis and `unhang explain` know it.
  Known to the *job* (its code), its *log*, the *firmware*, or only as an *action* that somebody takes.

Confidence is that of the source: *documented* by a vendor, said by *maintainers*, *reported* by users, or *inferred*.

"""
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
    return f"{HEAD}{count} incidents, {len(lines)} rows.\n\n{TABLE}" + "\n".join(lines) + "\n"


def _line(incident: str, became: str, row: Mapping[str, Any], decided: str) -> str:
    cells = (incident, became, row["title"], decided, row["confidence"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
