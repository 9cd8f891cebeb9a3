"""A run as a table for the terminal: findings, most severe first, each with where and what to do;
totals and the next command last.

Text in, text out: the caller says how wide the terminal is and whether it shows colour and more
than ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unhang.audit.report import phrases
from unhang.audit.report.folding import Fold, Unread, fold_findings, fold_unread
from unhang.audit.report.pasting import commands_by_rule, commands_of
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.command_lines import command_lines
from unhang.core.nodeset import broken, fold_hosts, shortened
from unhang.core.run.actions import Setting, waive_command
from unhang.core.run.findings import SEVERITIES
from unhang.core.table import STYLES, printed
from unhang.core.terminal import PIPED_WIDTH
from unhang.core.text import counted, listed, visible

WIDE = 150  # from this width on evidence and action are beside expected and found
LONGEST_BESIDE = 40  # columns; a longer set of nodes gets a line of its own
SHORT_ENOUGH = 5  # this number of findings fits on a screen without a summary
MOST_IN_SHORT = 16
SHORT_STYLES = {**STYLES, "critical": "bold red"}  # without the background of a label


def render_table(
    findings: Mapping[str, Any],
    width: int = PIPED_WIDTH,
    color: bool = False,
    *,
    plain: bool = False,
    full: bool = True,
    run: str = "runs/latest",
    program: str = "unhang",
    setting_of: Callable[[Mapping[str, Any]], Setting] = lambda cause: Setting(),
) -> str:
    """A findings document as text.

    findings  the object of findings.json (contract 2)
    width     columns; nothing is cut to fit, lines are wrapped
    plain     ASCII only
    full      every host; else a set of hosts that would fill more than a few lines is shortened
    run       the run folder as the user would type it, for the last line; "" if no command finds it
    program   unhang as the user would type it, likewise
    setting_of  cause -> what its command needs to know
    """
    by_verdict: dict[str, list[Mapping[str, Any]]] = {"fail": [], "unknown": [], "waived": []}
    for finding in findings.get("findings") or []:
        by_verdict.setdefault(str(finding.get("verdict")), []).append(finding)
    failed, waived = fold_findings(by_verdict["fail"]), fold_findings(by_verdict["waived"])
    parts: list[RenderableType] = [
        *(Text(line, style="dim") for line in [phrases.judged_by(findings)] if line),
        Text(""),
    ]
    by_rule = commands_by_rule(findings)
    longest = 10**9 if full else 3 * width
    for fold in failed:
        parts += [
            _finding(fold, width, longest),
            *_pasted(commands_of(fold, by_rule, setting_of), width),
            *_waivable(fold, run, by_rule, setting_of, width),
            Text(""),
        ]
    parts += _unknown(fold_unread(by_verdict["unknown"]), longest) + _waived(waived, longest)
    parts += _in_short(failed) + [
        Text(line, style="bold red") for line in phrases.left_out(findings)
    ]
    parts += _totals(findings, f"{program} report {run}" if run else "")
    return printed(parts, width, color, plain)


def _grid(rows: list[tuple[str, str, str]]) -> Table:
    """Label and text in two columns; (label, text, style)."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=8)
    grid.add_column(overflow="fold")
    above = ""
    for label, text, style in rows:
        grid.add_row(Text("" if label == above else label), Text(text, style=style))
        above = label
    return grid


def _finding(fold: Fold, width: int, longest: int) -> RenderableType:
    finding = fold.example
    severity = str(finding.get("severity") or "info")
    title = Text.assemble(
        (f" {severity.upper()} ", STYLES.get(severity, "bold")),
        " ",
        (visible(finding.get("title") or "?"), "bold"),
    )
    marks = phrases.situations(finding)
    places = phrases.places(fold, longest=longest)
    what = [("where", broken(line, width - 16), "bold") for line in places]
    what += [
        ("expected", visible(finding.get("expected") or "-"), ""),
        ("found", _found_text(fold), ""),
    ]
    what += [("nodes", line, "") for line in phrases.comparison(finding)]
    why = [
        ("why", f"{path} = {value}", "")
        for path, value in phrases.evidence(finding, most=3)
        if path != "…" and len(value) <= 120
    ]
    why += [("do", phrases.action(finding), "green")]
    helps, sure = phrases.workaround(finding), phrases.confidence(finding)
    why += [("until then", helps, "")] if helps else []
    why += [
        (
            "rule",
            visible(finding.get("rule") or "?", 120)
            + (f" ({sure})" if sure else "")
            + f", for: {visible(finding.get('owner', DEFAULT_OWNER), 40)}",
            "dim",
        )
    ]
    why += [("", mark, "dim") for mark in marks]
    if width < WIDE or max(map(len, places)) > LONGEST_BESIDE:
        body: Table = _grid(what + why)
    else:
        body = Table.grid(padding=(0, 3, 0, 0), expand=True)
        body.add_column(ratio=1)
        body.add_column(ratio=1)
        body.add_row(_grid(what), _grid(why))
    block = Table.grid()
    block.add_row(title)
    block.add_row(Padding(body, (0, 0, 0, 2)))
    return block


def _waivable(
    fold: Fold,
    run: str,
    by_rule: Mapping[str, Sequence[Mapping[str, Any]]],
    setting_of: Callable[[Mapping[str, Any]], Setting],
    width: int,
) -> list[RenderableType]:
    """The command that accepts the finding, where a command finds the run."""
    rule = str(fold.example["rule"])
    causes = by_rule.get(rule, ())
    if not run or not fold.hosts or not causes or rule in phrases.OF_POLICY:
        return []
    return _pasted([waive_command(rule, fold.hosts, run, setting_of(causes[0]))], width, "waive")


def _pasted(commands: Sequence[str], width: int, label: str = "run") -> list[RenderableType]:
    """The commands under a finding; their lines are not wrapped, because a broken word would be
    another word."""
    return [
        Text.assemble(
            (f"  {'' if place else label:<10}", "dim"), line, no_wrap=True, overflow="ignore"
        )
        for one in commands
        for place, line in enumerate(command_lines(visible(one, 4_000_000), width - 12))
    ]


def _found_text(fold: Fold) -> str:
    found = visible(fold.example.get("found") or "-")
    return f"{found} (and {fold.size - 1:,} more alike)" if fold.others else found


def _unknown(unread: list[Unread], longest: int) -> list[RenderableType]:
    if not unread:
        return []
    title = (
        f"{counted(sum(len(gap.paths) for gap in unread), 'fact')} could not be read, so these"
        " rules cannot say"
    )
    rows: list[RenderableType] = [
        Text.assemble((" UNKNOWN ", STYLES["unknown"]), " ", (title, "bold"))
    ]
    for gap in unread:
        rules = listed([visible(rule, 120) for rule in gap.rules], 4)
        lines = [
            ("fact" if len(gap.paths) == 1 else "facts", visible(gap.path, 400), "bold"),
            ("because", visible(gap.reason, 300), ""),
        ]
        lines += [("where", phrases.hosts(gap.hosts, longest), ""), ("rules", rules, "dim")]
        rows += [Padding(_grid(lines), (0, 0, 0, 2)), Text("")]
    return rows


def _waived(folds: list[Fold], longest: int) -> list[RenderableType]:
    if not folds:
        return []
    rows: list[RenderableType] = [
        Text.assemble((" WAIVED ", STYLES["waived"]), " ", ("found, and accepted for now", "bold"))
    ]
    for fold in folds:
        lines = [("what", visible(fold.example.get("title") or "?"), "")] + [
            ("where", line, "") for line in phrases.places(fold, longest=longest)
        ]
        lines += [
            ("reason", phrases.waiver(fold.example), ""),
            ("rule", visible(fold.example.get("rule") or "?", 120), "dim"),
        ]
        rows += [Padding(_grid(lines), (0, 0, 0, 2)), Text("")]
    return rows


def _in_short(folds: list[Fold]) -> list[RenderableType]:
    """The severe findings once more, a line each, because a person sees the end of a long output
    first."""
    grave = [fold for fold in folds if fold.example.get("severity") in ("critical", "error")]
    if len(folds) <= SHORT_ENOUGH or not grave:
        return []
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=28)
    grid.add_column(overflow="fold")
    for fold in grave[:MOST_IN_SHORT]:
        severity = str(fold.example["severity"])
        where = shortened(fold_hosts(fold.hosts), 40) or phrases.places(fold)[0]
        grid.add_row(
            Text(severity, style=SHORT_STYLES[severity]),
            Text(where, style="bold"),
            Text(visible(fold.example.get("title") or "?")),
        )
    more = [Text(f"and {len(grave) - MOST_IN_SHORT} more")] if len(grave) > MOST_IN_SHORT else []
    return [Text("In short", style="bold"), grid, *more, Text("")]


def _totals(findings: Mapping[str, Any], report: str) -> list[RenderableType]:
    totals = phrases.tally(findings)
    worst = next(iter(totals.by_severity), "")
    lines = [Text(phrases.headline(totals), style=SHORT_STYLES.get(worst, "bold"))]
    if totals.by_status:
        lines.append(Text(f"nodes      {phrases.node_counts(totals)}"))
    lines.append(Text(f"verdicts   {phrases.verdict_counts(totals)}"))
    by_severity = findings.get("totals_by_severity") or {}
    if by_severity:
        lines.append(
            Text(
                "findings   "
                + ", ".join(
                    f"{by_severity[severity]:,} {severity}"
                    for severity in SEVERITIES
                    if by_severity.get(severity)
                )
            )
        )
    return [
        *lines,
        *([Text(""), Text(f"next: {report} --format html", style="bold")] if report else []),
    ]
