"""The message about new and resolved findings (`unhang/news/1`), made from what changed since
another run. Known findings are not in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unhang.audit.history.changes import CHANGED, NEW, RESOLVED, FoundChange
from unhang.audit.history.runs import PastRun
from unhang.audit.report.folding import item_label
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import visible
from unhang.judge.rules.rules import SEVERITIES

MOST_ROWS = 100  # of each kind: a message has an end, whatever happens to a fleet
MOST_LINES = 20  # of `text`
LONGEST = 300
LONGEST_NODES = 400


def news_of(
    before: PastRun, now: PastRun, changes: Iterable[FoundChange], severity: str
) -> dict[str, Any] | None:
    """The message, or None where nothing is new or resolved. severity: lesser findings are left
    out.

    Its shape is news-1.yaml. The counts are of all rows, the lists hold the gravest MOST_ROWS of
    each. Secrets are masked, and what nodes say is shown as `visible` makes it.
    """
    counted = SEVERITIES[: SEVERITIES.index(severity) + 1]
    shown = [one for one in changes if one.severity in counted]
    new, resolved = (
        [one for one in shown if one.change in (NEW, CHANGED)],
        [one for one in shown if one.change == RESOLVED],
    )
    if not new and not resolved:
        return None
    rows = {
        "new": [_row(one) for one in new[:MOST_ROWS]],
        "resolved": [_row(one) for one in resolved[:MOST_ROWS]],
    }
    head = f"unhang: {len(new)} new, {len(resolved)} resolved in run {visible(now.id, 80)}"
    text = "\n".join([head, *_lines([*rows["new"], *rows["resolved"]], len(new) + len(resolved))])
    runs = {
        "run": visible(now.id, 80),
        "earlier_run": visible(before.id, 80),
        "started": now.started,
    }
    return {
        "schema": "unhang/news/1",
        "text": text,
        **runs,
        **rows,
        "new_count": len(new),
        "resolved_count": len(resolved),
    }


def _row(one: FoundChange) -> dict[str, Any]:
    place = item_label(one.place) if one.place else ""
    nodes = (
        "the whole fleet" if one.hosts == ("",) else shortened(fold_hosts(one.hosts), LONGEST_NODES)
    )
    texts = {"title": one.title, "place": place, "found": one.found, "nodes": nodes}
    masked = {
        name: visible(without_secrets(str(text)), LONGEST_NODES if name == "nodes" else LONGEST)
        for name, text in texts.items()
    }
    return {
        "change": one.change,
        "severity": one.severity,
        "rule": visible(one.rule, 120),
        **masked,
        "count": len(one.hosts),
    }


def _lines(rows: Sequence[dict[str, Any]], all_of_them: int) -> list[str]:
    lines = [
        f"{row['change'].upper()} {row['severity']}: {row['nodes']}: {row['title']} [{row['rule']}]"
        for row in rows[:MOST_LINES]
    ]
    return [*lines, *([f"and {all_of_them - len(lines)} more"] if all_of_them > len(lines) else [])]
