"""The first screen of a run: nodes by verdict, then causes by harm, each with its nodes, what was
found, what to do and the command for it.

Warnings are listed below the error of the same nodes. At most 40 lines, for any number of nodes;
more only if more nodes have critical causes or are unread, each of which has its line. Text in,
text out, like the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unhang.audit.report import phrases
from unhang.audit.report.phrases import VENDOR
from unhang.audit.report.screen_blocks import (
    LABEL,
    LONGEST_NODES,
    VERDICT_STYLES,
    Line,
    fitted,
    wrapped,
)
from unhang.core.command_lines import pasted
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.actions import Setting, host_option
from unhang.core.run.findings import NOT_A_GPU_NODE, hosts_of
from unhang.core.table import Line as Parts
from unhang.core.table import printed
from unhang.core.terminal import PIPED_WIDTH
from unhang.core.text import counted, visible

LINES = 40
# The meaning of a verdict for the jobs of a node.
SERVICE = {
    "critical": "keep jobs off now",
    "error": "repair next",
    "warning": "can wait",
    "unread": "look why",
}
NARROW = 70  # columns; in a narrower table the nodes need the whole line


def render_screen(
    findings: Mapping[str, Any],
    width: int = PIPED_WIDTH,
    color: bool = False,
    *,
    plain: bool = False,
    run: str = "runs/latest",
    program: str = "unhang",
    setting_of: Callable[[Mapping[str, Any]], Setting] = lambda cause: Setting(),
    planned: bool = True,
) -> str:
    """A findings document as one screen.

    findings    the object of findings.json, with causes
    width       columns; a line that is longer is wrapped between words, and between the names of
    nodes
    run         the run folder as the user would type it, "" if no command finds it; program: unhang
    likewise
    setting_of  cause -> what its command needs to know
    planned     whether a plan can be made of what is shown
    """
    head = _head(findings, width)
    foot = _foot(findings, f"{program} {{}} {run}" if run else "", planned, width)
    causes = _with_found(findings)
    room = LINES - len(head) - len(foot)
    shown, omitted = fitted(causes, room, width, setting_of)
    if omitted:  # two lines say how many
        shown, omitted = fitted(causes, room - 2, width, setting_of)
    lines = [*head, *shown, *_rest(omitted, width), *foot]
    return printed(map(_styled, lines), color, plain)


def _with_found(findings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The causes with `found`: what was found on the first of the nodes, and how many more of its
    rule the cause has."""
    causes: list[Mapping[str, Any]] = []
    for cause in findings["causes"]:
        own = [findings["findings"][place] for place in cause["findings"]]
        own = [one for one in own if one["rule"] == cause["rule"]]
        first = [one for one in own if set(cause["nodes"][:1]) <= set(hosts_of(one))]
        more = f" (and {len(own) - 1:,} more)" if len(own) > 1 else ""
        causes.append({**cause, "found": f"{first[0]['found']}{more}" if first else ""})
    return causes


def _head(findings: Mapping[str, Any], width: int) -> list[Line]:
    verdicts = findings["node_verdicts"]
    nodes = sum(map(len, verdicts.values()))
    lines = [("", part, "dim") for part in wrapped(phrases.judged_by(findings), width)]
    described = phrases.node_verdicts(findings) or phrases.NO_NODES
    lines += (
        [("", f"only {visible(findings['filter'], 300)}", "")] if findings.get("filter") else []
    )
    lines += [("", "", ""), *(("", part, "bold") for part in wrapped(described, width))]
    for verdict, advice in SERVICE.items():
        ending = f": {advice}" if width >= NARROW else ""
        if verdicts[verdict]:
            lines.append(
                (
                    verdict,
                    shortened(fold_hosts(verdicts[verdict]), width - LABEL - 2 - len(ending))
                    + ending,
                    VERDICT_STYLES[verdict],
                )
            )
    without = phrases.without_gpus(findings, LONGEST_NODES)
    style = VERDICT_STYLES[NOT_A_GPU_NODE]
    lines += [("", part, style) for part in wrapped(without, width) if part]
    if nodes and not findings["causes"]:
        by_severity = findings.get("totals_by_severity") or {}
        remarks = int(by_severity.get("info") or 0)
        found, ending = (
            ("nothing above info", f" ({counted(remarks, 'remark')})")
            if remarks
            else ("nothing found", "")
        )
        on = shortened(fold_hosts(verdicts["healthy"]), width - len(found + ending) - 7)
        if len(verdicts["healthy"]) == nodes:
            lines.append(("", f"{found} on {on}{ending}", ""))
        elif by_severity:
            lines.append(
                (
                    "",
                    (
                        "no cause of its own; -v shows"
                        f" {counted(sum(by_severity.values()), 'finding')}"
                    ),
                    "",
                )
            )
    return [*lines, ("", "", "")]


def _foot(findings: Mapping[str, Any], about: str, planned: bool, width: int) -> list[Line]:
    """about: a command on the run, with {} in place of its name, or ""."""
    lines: list[Line] = [("", line, "bold red") for line in phrases.left_out(findings)]
    totals = findings.get("totals") or {}
    if totals.get("unknown"):
        unread = (
            f"{counted(int(totals['unknown']), 'check')} could not be made: facts were not read"
        )
        lines += [("", line, "bold magenta") for line in wrapped(unread, width)]
    if totals.get("waived"):
        lines.append(("", f"{counted(int(totals['waived']), 'finding')} waived", "bold cyan"))
    if not about:
        return lines
    planned = planned and any(cause["remedy"]["role"] for cause in findings["causes"])
    only = f" {findings['filter']}" if findings.get("filter") else ""
    after = (
        f"{about.format('plan')}{only}" if planned else f"{about.format('report')} --format html"
    )
    vendor = next(
        (
            cause["nodes"][0]
            for cause in findings["causes"]
            if cause["nodes"] and cause.get("owner") == VENDOR
        ),
        None,
    )
    if vendor is not None:
        lines += _pasted(
            "vendor's ticket",
            f"{about.format('report')} {host_option(visible(vendor, 300))} -o ticket",
            "",
            width,
        )
    return [
        *lines,
        *_pasted("every finding", f"{about.format('report')} -v{only}", "", width),
        *_pasted("next", after, "bold", width),
    ]


def _pasted(label: str, typed: str, style: str, width: int) -> list[Line]:
    return [("", line, style) for line in pasted(label, typed, width)]


def _rest(omitted: Sequence[Mapping[str, Any]], width: int) -> list[Line]:
    if not omitted:
        return []
    described = phrases.severity_counts(Counter(cause["severity"] for cause in omitted))
    return [
        ("", line, "bold")
        for line in wrapped(f"and {counted(len(omitted), 'more cause')}: {described}", width)
    ]


def _styled(line: Line) -> Parts:
    label, text, style = line
    return ((f"{label:<{LABEL}}", style), (text, "")) if label else ((text, style),)
