"""The first screen of a run: nodes by verdict, then causes by harm, each with its nodes, what to do
and the command for it.

Causes of the same nodes are one block: the most serious one in full, the others named below it. At
most 40 lines, for any number of nodes; more only if more nodes have critical causes or are unread,
each of which has its line. Text in, text out, like the table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from unhang.audit.report import phrases
from unhang.audit.report.best_action import LEAST, best_action
from unhang.audit.report.ticket import OWNER
from unhang.audit.rules.rules import SEVERITIES
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.command_lines import command_lines
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.actions import Setting, command, option
from unhang.core.run.findings import NOT_A_GPU_NODE, hosts_of
from unhang.core.table import STYLES, printed
from unhang.core.terminal import PIPED_WIDTH
from unhang.core.text import counted, visible

LINES = 40
LABEL = 10  # columns of `CRITICAL  `
LONGEST_NODES = 40
LONGEST_REASON = 300
MOST_DO = 2  # lines for the action, if there is room
MOST_READ_BY = 3  # lines
DISPUTED = ". Sources disagree: "  # what follows is for `report -v` and `explain`
MOST_ALSO = 4  # further causes of the same nodes that are named
VERDICT_STYLES = {
    "critical": "bold red",
    "error": "bold red",
    "warning": "bold yellow",
    "unread": "bold magenta",
    NOT_A_GPU_NODE: "bold magenta",
    "healthy": "bold green",
}
# The meaning of a verdict for the jobs of a node.
SERVICE = {
    "critical": "keep jobs off now",
    "error": "repair next",
    "warning": "can wait",
    "unread": "look why",
}
NARROW = 70  # columns; in a narrower table the nodes need the whole line
Line = tuple[str, str, str]  # label, text, style; without a label the line starts at the left
JOINED = "\u00a0"  # a blank at which no line is broken
MORE = " "  # the label of a continued line


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
    read_by: str = "",
) -> str:
    """A findings document as one screen.

    findings    the object of findings.json, with causes
    width       columns; a line that is longer is wrapped between words, and between the names of
    nodes
    run         the run folder as the user would type it, "" if no command finds it; program: unhang
    likewise
    setting_of  cause -> what its command needs to know
    planned     whether a plan can be made of what is shown
    read_by     how the nodes were read, if not all alike
    """
    head = _head(findings, width, read_by)
    foot = _foot(findings, f"{program} {{}} {run}" if run else "", planned, width)
    causes = _with_reasons(findings)
    shown, omitted = _fitted(causes, LINES - len(head) - len(foot) - 2, width, setting_of)
    lines = [*head, *shown, *_rest(omitted, width), *foot]
    return printed([_styled(line) for line in lines], width, color, plain)


def _with_reasons(findings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The causes; those for unread nodes with `why`, what is known of the first of these nodes."""
    found = {
        (one["rule"], host): one["found"]
        for one in findings["findings"]
        if one["verdict"] == "fail"
        for host in hosts_of(one)
    }
    return [
        (
            {**cause, "why": found.get((cause["rule"], cause["nodes"][0]), "")}
            if cause["unread"] and cause["nodes"]
            else cause
        )
        for cause in findings["causes"]
    ]


def _head(findings: Mapping[str, Any], width: int, read_by: str) -> list[Line]:
    verdicts = findings["node_verdicts"]
    nodes = sum(map(len, verdicts.values()))
    lines = [("", part, "dim") for part in _wrapped(phrases.judged_by(findings), width)]
    lines += [("", part, "dim") for part in _wrapped(read_by, width)[:MOST_READ_BY] if part]
    described = phrases.node_verdicts(findings) or phrases.NO_NODES
    lines += (
        [("", f"only {visible(findings['filter'], 300)}", "")] if findings.get("filter") else []
    )
    lines += [("", "", ""), *(("", part, "bold") for part in _wrapped(described, width))]
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
    if without := list(findings.get("without_gpus") or ()):
        what = f"no NVIDIA GPU and no driver: {phrases.applied_checks(without, findings)}"
        on = shortened(fold_hosts(without), LONGEST_NODES)
        lines += [
            ("", part, VERDICT_STYLES[NOT_A_GPU_NODE]) for part in _wrapped(f"{on}: {what}", width)
        ]
    lines += [("", part, "") for part in _wrapped(_best(findings), width) if part]
    if nodes and not findings["causes"]:
        by_severity = findings.get("totals_by_severity") or {}
        remarks = int(by_severity.get(LEAST) or 0)
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


def _best(findings: Mapping[str, Any]) -> str:
    """The one action that fixes most."""
    best = best_action(findings["causes"], findings["findings"])
    # a person's work on one node stands in its block
    if best is None or (not best.role and len(best.nodes) == 1):
        return ""
    what = (
        f"role {visible(best.role, 80)}"
        if best.role
        else f"what [{visible(best.rules[0], 120)}] asks for"
    )
    of = f" of {len(best.rules)} causes" if len(best.rules) > 1 else ""
    return (
        f"one action fixes most: {what} on {shortened(fold_hosts(best.nodes), LONGEST_NODES)}:"
        f" {counted(best.findings, 'finding')}{of}"
    )


def _foot(findings: Mapping[str, Any], about: str, planned: bool, width: int) -> list[Line]:
    """about: a command on the run, with {} in place of its name, or ""."""
    lines: list[Line] = [("", line, "bold red") for line in phrases.left_out(findings)]
    totals = findings.get("totals") or {}
    if totals.get("unknown"):
        unread = (
            f"{counted(int(totals['unknown']), 'check')} could not be made: facts were not read"
        )
        lines += [("", line, "bold magenta") for line in _wrapped(unread, width)]
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
            if cause["nodes"] and cause.get("owner") == OWNER
        ),
        None,
    )
    if vendor is not None:
        lines += _pasted(
            "vendor's ticket",
            f"{about.format('report')} {option('--host', visible(vendor, 300))} -o ticket",
            "",
            width,
        )
    return [
        *lines,
        *_pasted("every finding", f"{about.format('report')} -v{only}", "", width),
        *_pasted("next", after, "bold", width),
    ]


def _pasted(label: str, typed: str, style: str, width: int) -> list[Line]:
    """A command behind its label; below it, over several lines that can be pasted, where one would
    be too long."""
    if len(label) + 2 + len(typed) <= width:
        return [("", f"{label}: {typed}", style)]
    return [
        ("", f"{label}:", style),
        *(("", f"  {line}", style) for line in command_lines(typed, width - 2)),
    ]


def _rest(omitted: Sequence[Mapping[str, Any]], width: int) -> list[Line]:
    if not omitted:
        return []
    counts = {
        severity: sum(cause["severity"] == severity for cause in omitted) for severity in SEVERITIES
    }
    described = ", ".join(f"{count:,} {severity}" for severity, count in counts.items() if count)
    return [
        ("", line, "bold")
        for line in _wrapped(f"and {counted(len(omitted), 'more cause')}: {described}", width)
    ]


def _fitted(
    causes: Sequence[Mapping[str, Any]],
    room: int,
    width: int,
    setting_of: Callable[[Mapping[str, Any]], Setting],
) -> tuple[list[Line], list[Mapping[str, Any]]]:
    """(lines, causes that are not in them). Each critical cause and each cause for unread nodes has
    a line, and details as long as there is room."""
    blocks = _of_same_nodes(causes)
    must = [block for block in blocks if block[0]["severity"] == "critical" or block[0]["unread"]]
    others = [block for block in blocks if block not in must]
    shown: dict[int, list[Line]] = {
        number: [_one_line(block[0], len(block) - 1, width)] for number, block in enumerate(must)
    }
    room -= len(shown)
    for number, (cause, *also) in enumerate(must):
        for most in (MOST_DO, 1):
            lines = _block(cause, also, width, most, setting_of(cause))
            if len(lines) - 1 <= room:
                room -= len(lines) - 1
                shown[number] = lines
                break
    all_lines = [line for lines in shown.values() for line in lines]
    loud = [block for block in others if block[0]["severity"] != SEVERITIES[-1]]
    most = (
        MOST_DO
        if sum(len(_block(cause, also, width, MOST_DO, setting_of(cause))) for cause, *also in loud)
        <= room
        else 1
    )
    for place, (cause, *also) in enumerate(others):
        lines = _block(cause, also, width, most, setting_of(cause))
        if len(lines) > room:
            return all_lines, [cause for block in others[place:] for cause in block]
        room -= len(lines)
        all_lines += lines
    return all_lines, []


def _of_same_nodes(causes: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Causes above info whose nodes are the same, in the order of the first of them. An info
    finding and one about the whole fleet stand alone."""
    blocks: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cause in causes:
        alone = cause["severity"] == SEVERITIES[-1] or not cause["nodes"]
        blocks.setdefault(
            (cause["id"],) if alone else (cause["unread"], *cause["nodes"]), []
        ).append(cause)
    return list(blocks.values())


def _label(cause: Mapping[str, Any]) -> tuple[str, str]:
    return (
        ("UNREAD", VERDICT_STYLES["unread"])
        if cause["unread"]
        else (cause["severity"].upper(), STYLES.get(cause["severity"], "bold"))
    )


def _where(cause: Mapping[str, Any]) -> str:
    hosts = cause["nodes"]
    if not hosts:
        return phrases.without_nodes(cause["rule"])
    return shortened(fold_hosts(hosts), LONGEST_NODES) + (
        f" ({len(hosts):,} nodes)" if len(hosts) > 1 else ""
    )


def _title(cause: Mapping[str, Any]) -> str:
    return (
        f"{_where(cause)}: {visible(cause['title'], 200)}"
        f" [{visible(cause['rule'], 120)}],{JOINED}for:{JOINED}{visible(cause.get('owner', DEFAULT_OWNER), 40)}"  # noqa: E501
    )


def _one_line(cause: Mapping[str, Any], also: int, width: int) -> Line:
    """also: the number of further causes of the same nodes."""
    label, style = _label(cause)
    ending = f" and {counted(also, 'more cause')}" if also else ""
    return (
        label,
        _cut(_title(cause).replace(JOINED, " "), width - LABEL - len(ending)) + ending,
        style,
    )


def _block(
    cause: Mapping[str, Any],
    also: Sequence[Mapping[str, Any]],
    width: int,
    most: int,
    setting: Setting,
) -> list[Line]:
    """A cause in full: title, what to do (at most `most` lines), what a ticket names, the command,
    the other causes of its nodes."""
    label, style = _label(cause)
    lines = _paragraph(label, _title(cause), style, width)
    if why := cause.get("why"):
        lines += [
            ("  found" if not place else MORE, line, "dim")
            for place, line in enumerate(_wrapped(visible(why, LONGEST_REASON), width - LABEL))
        ]
    if conflicts := cause["remedy"]["conflicts"]:
        lines += _paragraph("conflict", phrases.conflict(conflicts[0]), "bold yellow", width)
    else:
        done = _wrapped(phrases.cause_action(cause).partition(DISPUTED)[0], width - LABEL)
        lines += [
            ("  do" if not place else MORE, line, "dim") for place, line in enumerate(done[:most])
        ]
        if len(done) > most:
            lines[-1] = (lines[-1][0], _cut(lines[-1][1] + " " + done[most], width - LABEL), "dim")
    if not cause["remedy"]["role"] and (named := phrases.devices(cause)):
        reported = _wrapped(named, width - LABEL)
        lines += [
            ("  ticket" if not place else MORE, line, "dim")
            for place, line in enumerate(reported[:MOST_DO])
        ]
        if len(reported) > MOST_DO:
            lines[-1] = (
                MORE,
                _cut(f"{reported[MOST_DO - 1]} {reported[MOST_DO]}", width - LABEL),
                "dim",
            )
    pasted = command_lines(visible(command(cause, setting), 4_000_000), width - LABEL)
    lines += [("  run" if not place else MORE, line, "dim") for place, line in enumerate(pasted)]
    return lines + _paragraph("  also", _named(also), "dim", width) if also else lines


def _named(causes: Sequence[Mapping[str, Any]]) -> str:
    """Causes by severity and rule: `error acs-on-bare-metal, warning swap-in-use, and 3 more`."""
    named = [f"{cause['severity']} {visible(cause['rule'], 120)}" for cause in causes[:MOST_ALSO]]
    return ", ".join(
        [*named, *([f"and {len(causes) - MOST_ALSO} more"] if len(causes) > MOST_ALSO else [])]
    )


def _paragraph(label: str, text: str, style: str, width: int) -> list[Line]:
    return [
        (label if not place else MORE, line, style)
        for place, line in enumerate(_wrapped(text, width - LABEL))
    ]


def _wrapped(text: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(
        text, max(width, 20), break_long_words=False, break_on_hyphens=False
    ) or [""]
    return [line.replace(JOINED, " ") for line in wrapped]


def _cut(text: str, width: int) -> str:
    """The words that fit, with … if there are more."""
    if len(text) <= width:
        return text
    kept = text[: width - 1]
    return (kept[: kept.rfind(" ")] if " " in kept else kept).rstrip(" ,;:") + "…"


def _styled(line: Line) -> Text:
    label, text, style = line
    parts = [(f"{label:<{LABEL}}", style), (text, "")] if label else [(text, style)]
    return Text.assemble(*parts, no_wrap=True, overflow="ignore")
