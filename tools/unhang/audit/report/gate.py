"""The outcome of the gate (unhang/gate/1) as a table and as JUnit. Values in, text out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from unhang.core.junit import Case, Outcome, render_suite
from unhang.core.nodeset import fold_hosts
from unhang.core.text import ascii_only, visible

ORDER = ("fail", "not proved", "pass")
WIDEST = len("NOT PROVED")


def render_gate(document: Mapping[str, Any], run: str, program: str, plain: bool) -> str:
    """Nodes with equal outcome and reasons folded, those that fail first. run, program: as a person
    types them; plain: ASCII only."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in document["nodes"]:
        differences = [
            _difference(one)
            for one in row["differences"]
            if one["severity"] not in document["severities"]
        ]
        groups.setdefault((row["outcome"], (*row["reasons"], *differences)), []).append(row["host"])
    lines = []
    for (outcome, reasons), hosts in sorted(
        groups.items(), key=lambda group: (ORDER.index(group[0][0]), group[1])
    ):
        lines += [
            f" {outcome.upper():<{WIDEST}}  {fold_hosts(hosts)}",
            *(f" {'':<{WIDEST}}  {visible(reason, 600)}" for reason in reasons),
        ]
    totals = ", ".join(
        f"{document['totals'][outcome]} {outcome}" for outcome in ("pass", "fail", "not proved")
    )
    lines += ["", f"gate       {totals}"]
    lines += (
        ["quick      the audit alone: no smoke test was made, and nobody is admitted"]
        if document["quick"]
        else []
    )
    lines += [f"reference  {visible(document['reference'])}"] if document["reference"] else []
    lines += ["", f"next: {program} report {run}"]
    text = "\n".join(lines) + "\n"
    return ascii_only(text) if plain else text


def _difference(row: Mapping[str, Any]) -> str:
    """A difference that fails no node, with both values."""
    found, expected = (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in (row["found"], row["expected"])
    )
    return (
        f"differs, {row['severity']}: {row['rule']}: found {visible(found, 200)}, {row['by']}"
        f" {visible(expected, 200)}"
    )


def render_gate_junit(document: Mapping[str, Any]) -> str:
    """One test case per node; a node that is not proved is an error, since a skipped one would read
    as good."""
    return render_suite("unhang preprovision", map(_case, document["nodes"]))


def _case(row: Mapping[str, Any]) -> Case:
    if row["outcome"] == "pass":
        return Case("unhang.preprovision", row["host"])
    reasons = row["reasons"] or [row["outcome"]]
    return Case(
        "unhang.preprovision",
        row["host"],
        Outcome("failure" if row["outcome"] == "fail" else "error", reasons[0], reasons),
    )
