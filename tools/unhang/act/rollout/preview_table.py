"""A preview as text for people: nodes with the same outcome together, refusals first. Values in,
text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.act.rollout.preview import (
    CHANGES,
    NO_CHANGE,
    NOT_PLAYED,
    REFUSES,
    UNFORESEEN,
    changes,
    refuses,
)
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.text import counted, visible, wrapped

# groups of hosts, changes and reports in the table; the JSON has all
MOST_GROUPS, MOST_CHANGES, MOST_REPORTS = 30, 4, 1
LONGEST_WHY, LONGEST_REPORT, LONGEST_LIST = 240, 160, 200
# columns; the text beside role and outcome has at least the last
ROLE, OUTCOME, NARROWEST = 17, 14, 12
LABELS = {REFUSES: "not possible"}
Row = Mapping[str, Any]


def render_preview(preview: Row, width: int = 80) -> str:
    """The preview, shortened; its JSON has all. width: columns."""
    groups: dict[tuple[tuple[str, str, str], ...], list[Row]] = {}
    for row in preview["hosts"]:
        groups.setdefault(tuple(_lines(row)), []).append(row)
    ordered = sorted(
        groups.items(), key=lambda one: (not refuses(one[1][0]), not changes(one[1][0]))
    )
    shown = ordered[:MOST_GROUPS]
    lines = [
        *wrapped(
            f"preview of the plan of run {visible(preview['run'])}: nothing was written on any"
            " node",
            width,
        ),
        "",
    ]
    for described, rows in shown:
        lines += [*_group(described, rows, width), ""]
    if omitted := [row for _, rows in ordered[len(shown) :] for row in rows]:
        lines += [
            (
                f"and {counted(len(omitted), 'more node')}, each with another outcome:"
                f" {_counts(omitted)}"
            ),
            "",
        ]
    lines += wrapped(
        f"{counted(len(preview['hosts']), 'node')}: {_counts(preview['hosts'])};"
        f" {_reboots(preview['hosts'])}",
        width,
    )
    if preview["policy_edited"]:
        lines += ["", *wrapped(visible(preview["policy_edited"]), width, 2)]
    if without_root := [row["host"] for row in preview["hosts"] if row["needs_root"]]:
        hosts = shortened(fold_hosts(without_root), LONGEST_LIST)
        advice = "add --ansible=--become, or set ansible_become: true in the inventory"
        lines += [
            "",
            *wrapped(
                f"{hosts}: --apply needs root there, and the connecting user may not lock the node;"
                f" {advice}",
                width,
                2,
            ),
        ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _group(
    described: Sequence[tuple[str, str, str]], rows: Sequence[Row], width: int
) -> Iterator[str]:
    hosts = shortened(fold_hosts(row["host"] for row in rows), LONGEST_LIST)
    yield from wrapped(hosts + (f" ({len(rows):,} nodes)" if len(rows) > 1 else ""), width, 2)
    before = ""
    for role, outcome, text in described:
        start = (
            f"  {'' if role == before else role:<{ROLE}}{LABELS.get(outcome, outcome):<{OUTCOME}}"
        )
        before = role
        yield from wrapped(text, max(width, len(start) + NARROWEST), start=start)


def _lines(row: Row) -> Iterator[tuple[str, str, str]]:
    """(role or label, outcome, text) of a host."""
    if row["why"]:
        yield "the node", REFUSES, visible(row["why"], LONGEST_WHY)
    for one in row["roles"]:
        if row["why"] and one["outcome"] == NOT_PLAYED:
            continue  # the reason has been printed
        yield from _role(one)
    for why in row["refused"]:
        yield "the plan", REFUSES, visible(why, LONGEST_WHY)
    forward = [one["why"] for one in row["reboots"] if one["step"] != "rollback"]
    if forward and not row["why"]:
        yield "reboot", f"{len(forward)} at most", visible("; ".join(forward), LONGEST_WHY)
    if row["jobs"] != 0:
        yield "jobs", "" if row["jobs"] else "not known", visible(row["running"], LONGEST_WHY)


def _role(one: Row) -> Iterator[tuple[str, str, str]]:
    why = visible(one["why"], LONGEST_WHY)
    texts = {
        REFUSES: why,
        UNFORESEEN: why,
        NO_CHANGE: f"nothing to do for {', '.join(one['because'])}",
    }
    outcome, role = one["outcome"], one["role"]
    if outcome in texts or not one["changes"]:
        yield role, outcome, texts.get(outcome, "")
    described = [text for change in one["changes"] for text in _change(change)]
    for place, text in enumerate(described[:MOST_CHANGES]):
        yield role, CHANGES if not place and outcome == CHANGES else "", text
    if len(described) > MOST_CHANGES:
        yield role, "", f"and {counted(len(described) - MOST_CHANGES, 'more change')}"
    reports = one["reports"][:MOST_REPORTS]
    for text in reports:
        yield role, "", f"reports: {visible(text, LONGEST_REPORT)}"
    if more := len(one["reports"]) - len(reports):
        yield role, "", f"and {counted(more, 'more report')}"


def _change(change: Row) -> Iterator[str]:
    """A file and the number of changed lines, or the task if nothing more is known."""
    if not change["diffs"]:
        yield visible(change["task"], 200)
    for diff in change["diffs"]:
        numbers = " ".join(
            f"{sign}{diff[key]}" for sign, key in (("+", "added"), ("-", "removed")) if diff[key]
        )
        yield f"{visible(diff['name'] or change['task'], 200)} ({numbers} lines)"


def _counts(rows: Sequence[Row]) -> str:
    """Counts each node once: as refused, else as changed, else as unchanged."""
    refused = [row for row in rows if refuses(row)]
    changed = [row for row in rows if changes(row) and not refuses(row)]
    parts = [
        (len(refused), "cannot be changed as planned"),
        (len(changed), "would change"),
        (len(rows) - len(refused) - len(changed), "need no change"),
    ]
    return ", ".join(f"{number:,} {label}" for number, label in parts if number) or "none"


def _reboots(rows: Sequence[Row]) -> str:
    forward = sum(
        one["step"] != "rollback" for row in rows if not row["why"] for one in row["reboots"]
    )
    return f"{counted(forward, 'reboot')} at most"
