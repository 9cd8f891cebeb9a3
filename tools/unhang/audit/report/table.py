"""A run as a table for the terminal: findings, most severe first, each with where and what to do;
totals and the next command last.

Text in, text out: the caller says how wide the terminal is and whether it shows colour and more
than ASCII.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from unhang.audit.report import phrases
from unhang.audit.report.folding import Fold, Unread, fold_findings, fold_unread, of_verdict
from unhang.audit.report.pasting import commands_by_rule, commands_of
from unhang.audit.report.screen_blocks import LABEL
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.command_lines import command_lines
from unhang.core.nodeset import broken, fold_hosts, shortened
from unhang.core.run.actions import Setting, waive_command
from unhang.core.run.findings import OF_POLICY
from unhang.core.table import STYLES, Line, printed
from unhang.core.terminal import PIPED_WIDTH
from unhang.core.text import counted, listed, visible

WIDE = 150  # from this width on evidence and action are beside expected and found
LONGEST_BESIDE = 40  # columns; a longer set of nodes gets a line of its own
SHORT_ENOUGH = 5  # this number of findings fits on a screen without a summary
MOST_IN_SHORT = 16
WIDEST_IN_SHORT = 28  # columns of the nodes there
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
    failed = fold_findings(of_verdict("fail", findings))
    waived = fold_findings(of_verdict("waived", findings))
    parts = [*_folded(phrases.judged_by(findings), width, "dim"), ()]
    by_rule = commands_by_rule(findings)
    longest = 10**9 if full else 3 * width
    for fold in failed:
        parts += [
            *_finding(fold, width, longest),
            *_pasted(commands_of(fold, by_rule, setting_of), width),
            *_waivable(fold, run, by_rule, setting_of, width),
            (),
        ]
    parts += _unknown(fold_unread(of_verdict("unknown", findings)), width, longest)
    parts += _waived(waived, width, longest) + _in_short(failed, width)
    for line in phrases.left_out(findings):
        parts += _folded(line, width, "bold red")
    parts += _totals(findings, f"{program} report {run}" if run else "", width)
    return printed(parts, color, plain)


def _folded(
    text: str, width: int, style: str = "", label: tuple[str, str] = ("", ""), below: str = ""
) -> list[Line]:
    """The text in lines of this width: the first begins with the label, the others with `below`."""
    name = label[0]
    first, *rest = textwrap.wrap(
        text,
        width,
        initial_indent=" " * len(name),
        subsequent_indent=below,
        break_on_hyphens=False,
    ) or [name]
    return [(label, (first[len(name) :], style)), *(((one, style),) for one in rest)]


def _grid(rows: Sequence[tuple[str, str, str]], width: int) -> list[Line]:
    """(label, text, style) in two columns; a label is not written below itself."""
    wide = max(8, *(len(label) for label, _, _ in rows)) + 2
    lines: list[Line] = []
    above = ""
    for label, text, style in rows:
        shown = "" if label == above else label
        lines += _folded(text, width, style, (f"{shown:<{wide}}", "dim"), " " * wide)
        above = label
    return lines


def _beside(left: Iterable[Line], right: Iterable[Line], wide: int) -> list[Line]:
    """Two columns, of which the first has this width."""
    return [
        (*one, (" " * (wide - sum(len(text) for text, _ in one)), ""), *other)
        for one, other in itertools.zip_longest(left, right, fillvalue=())
    ]


def _titled(label: str, title: str, width: int) -> list[Line]:
    style = STYLES.get(label, "bold")
    return _folded(f" {title}", width, "bold", (f" {label.upper()} ", style))


def _indented(rows: Sequence[tuple[str, str, str]], width: int) -> list[Line]:
    return _beside((), _grid(rows, width - 2), 2)


def _finding(fold: Fold, width: int, longest: int) -> list[Line]:
    finding = fold.example
    severity = str(finding.get("severity") or "info")
    title = _titled(severity, visible(finding.get("title") or "?"), width)
    places = phrases.places(fold, longest=longest)
    what = [("where", broken(line, width - 16), "bold") for line in places]
    alike = f" (and {fold.size - 1:,} more alike)" if fold.others else ""
    what += [
        ("expected", visible(finding.get("expected") or "-"), ""),
        ("found", visible(finding.get("found") or "-") + alike, ""),
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
    why += [("", mark, "dim") for mark in phrases.situations(finding)]
    if width < WIDE or max(map(len, places)) > LONGEST_BESIDE:
        return title + _indented(what + why, width)
    half = width // 2
    left = _indented(what, half - 3)
    widest = max(sum(len(text) for text, _ in line) for line in left)
    return title + _beside(left, _grid(why, width - widest - 3), widest + 3)


def _waivable(
    fold: Fold,
    run: str,
    by_rule: Mapping[str, Sequence[Mapping[str, Any]]],
    setting_of: Callable[[Mapping[str, Any]], Setting],
    width: int,
) -> list[Line]:
    """The command that accepts the finding, where a command finds the run."""
    rule = str(fold.example["rule"])
    causes = by_rule.get(rule, ())
    if not run or not fold.hosts or not causes or rule in OF_POLICY:
        return []
    return _pasted([waive_command(rule, fold.hosts, run, setting_of(causes[0]))], width, "waive")


def _pasted(commands: Sequence[str], width: int, label: str = "run") -> list[Line]:
    """The commands under a finding; their lines are not wrapped, because a broken word would be
    another word."""
    return [
        ((f"  {'' if place else label:<10}", "dim"), (line, ""))
        for one in commands
        for place, line in enumerate(command_lines(visible(one, 4_000_000), width - 12))
    ]


def _unknown(unread: list[Unread], width: int, longest: int) -> list[Line]:
    facts = counted(sum(len(gap.paths) for gap in unread), "fact")
    title = f"{facts} could not be read, so these rules cannot say"
    lines = _titled("unknown", title, width) if unread else []
    for gap in unread:
        rows = [
            ("fact" if len(gap.paths) == 1 else "facts", visible(gap.path, 400), "bold"),
            ("because", visible(gap.reason, 300), ""),
            ("where", phrases.hosts(gap.hosts, longest), ""),
            ("rules", listed([visible(rule, 120) for rule in gap.rules], 4), "dim"),
        ]
        lines += [*_indented(rows, width), ()]
    return lines


def _waived(folds: list[Fold], width: int, longest: int) -> list[Line]:
    lines = _titled("waived", "found, and accepted for now", width) if folds else []
    for fold in folds:
        rows = [
            ("what", visible(fold.example.get("title") or "?"), ""),
            *(("where", line, "") for line in phrases.places(fold, longest=longest)),
            ("reason", phrases.waiver(fold.example), ""),
            ("rule", visible(fold.example.get("rule") or "?", 120), "dim"),
        ]
        lines += [*_indented(rows, width), ()]
    return lines


def _in_short(folds: list[Fold], width: int) -> list[Line]:
    """The severe findings once more, a line each, because a person sees the end of a long output
    first."""
    grave = [fold for fold in folds if fold.example.get("severity") in ("critical", "error")]
    if len(folds) <= SHORT_ENOUGH or not grave:
        return []
    nodes = [
        shortened(fold_hosts(fold.hosts), 40) or phrases.places(fold)[0]
        for fold in grave[:MOST_IN_SHORT]
    ]
    wide = LABEL + min(max(map(len, nodes)), WIDEST_IN_SHORT, (width - LABEL) // 2)
    lines = _folded("In short", width, "bold")
    for fold, where in zip(grave, nodes, strict=False):
        severity = str(fold.example["severity"])
        named = (f"{severity:<{LABEL}}", SHORT_STYLES[severity])
        title = _folded(visible(fold.example.get("title") or "?"), width - wide - 2)
        lines += _beside(_folded(where, wide, "bold", named, " " * LABEL), title, wide + 2)
    more = len(grave) - MOST_IN_SHORT
    return [*lines, *(_folded(f"and {more} more", width) if more > 0 else ()), ()]


def _totals(findings: Mapping[str, Any], report: str, width: int) -> list[Line]:
    totals = phrases.tally(findings)
    worst = next(iter(totals.by_severity), "")
    lines = _folded(phrases.headline(totals), width, SHORT_STYLES.get(worst, "bold"))
    for label, text in (
        ("nodes", phrases.node_counts(totals) if totals.by_status else ""),
        ("verdicts", phrases.verdict_counts(totals)),
        ("findings", phrases.severity_counts(findings.get("totals_by_severity") or {})),
    ):
        lines += _folded(text, width, "", (f"{label:<11}", "")) if text else []
    ending = _folded(f"next: {report} --format html", width, "bold")
    return [*lines, (), *ending] if report else lines
