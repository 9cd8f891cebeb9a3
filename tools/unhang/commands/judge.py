"""`unhang judge RUN`: judges a run folder again, off-line, and shows what was found."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unhang import run_folder
from unhang.catalogue import load_catalogue
from unhang.errors import UserError
from unhang.judge.judging import judge_run, thresholds_of
from unhang.judge.limits import Limits, Stopped, run_limited
from unhang.judge.policy import PolicyFile, load_policy
from unhang.judge.rules import SEVERITIES
from unhang.judge.run_input import RunInput, read_run_input
from unhang.judge.values import printable

FORMATS = ("table", "json", "html")
MOST_STOPPED = 5
SHOWN_FAULTS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, by which rules and policy, and how to show it."""
    parser.add_argument("run", metavar="RUN", nargs="?", default="runs/latest", help="run folder or its id (default: runs/latest)")
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="a folder of further rules; may be given again")
    parser.add_argument("--policy", metavar="FILE", help="judge by this policy instead of the run's own")
    parser.add_argument("--format", choices=FORMATS, default="table", help="what to print: table (default), json, html")
    parser.add_argument("--fail-on", choices=SEVERITIES[::-1], default="info", metavar="SEVERITY", help="exit with 1 from this severity on (default: info)")
    parser.add_argument("--now", metavar="DATE", help="the day that waivers are checked against, such as 2026-12-31 (default: today)")


def run(arguments: argparse.Namespace) -> int:
    """0 nothing found, 1 findings at or above --fail-on; what cannot be judged raises UserError."""
    folder = run_folder.find_run(arguments.run, Path("runs"))
    today = _day(arguments.now)
    head = judge_folder(folder, [Path(one) for one in arguments.rules], arguments.policy, today)
    _show(folder, arguments)
    if problems := list(_problems(head)):
        print("\n".join(f"unhang: {printable(one)}" for one in problems), file=sys.stderr)
        return 2
    severe = SEVERITIES[: SEVERITIES.index(arguments.fail_on) + 1]
    return int(any(head["totals_by_severity"].get(severity) for severity in severe))


def judge_folder(folder: Path, rules: list[Path], policy: str | None, today: str, limits: Limits | None = None) -> dict[str, Any]:
    """Writes findings.json and gives it without its findings. A rule that must be stopped is left out and named. Raises UserError, OSError."""
    run_input = read_run_input(folder)
    limits = limits or _limits(len(run_input.files))
    stopped: list[str] = []
    while True:
        found = run_limited(_work(run_input, rules, policy, today, list(stopped)), limits)
        if not isinstance(found, Stopped):
            return found
        if not found.at or found.at in stopped or len(stopped) >= MOST_STOPPED:
            raise UserError(f"judging was stopped: it used up its {found.by} ({limits}); last at {found.at or 'reading the rules'}")
        stopped.append(found.at)


def _problems(head: dict[str, Any]) -> Iterator[str]:
    """Why the answer is not the whole answer: rules that could not be used, or no node that was read."""
    refused = head["catalogue"]["refused"]
    yield from refused[:SHOWN_FAULTS]
    if refused:
        more = f" and {len(refused) - SHOWN_FAULTS} more" if len(refused) > SHOWN_FAULTS else ""
        yield f"{len(refused)} rules or files of rules were not used{more}; the findings of the others stand; next: unhang catalogue --check DIR"
    for rule in head["catalogue"]["stopped"]:
        yield f"rule {rule} was stopped and left out: it used up the time or memory that judging may take"
    if head["host_count"] and not head["nodes"].get("ok"):
        yield "no node was read"


def _limits(nodes: int) -> Limits:
    """Far above what any honest catalogue needs, so that only what never ends meets them."""
    return Limits(60 + nodes // 50, (1 << 30) + nodes * 100_000, 600 + nodes // 5)


def _work(run_input: RunInput, rules: list[Path], policy: str | None, today: str, without: list[str]) -> Callable[[Callable[[str], None]], Any]:
    def work(mark: Callable[[str], None]) -> dict[str, Any]:
        catalogue = load_catalogue(rules)
        if not catalogue.rules:
            raise UserError("\n".join([*catalogue.faults[:SHOWN_FAULTS], "expected rules, found none that can be used"]))
        chosen: PolicyFile | None = load_policy(Path(policy), thresholds_of(catalogue.rules)) if policy else None
        return judge_run(run_input, catalogue, today, chosen, mark, without)

    return work


def _day(given: str | None) -> str:
    if given is None:
        return datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        return datetime.date.fromisoformat(given).isoformat()
    except ValueError:
        raise UserError(f"--now: expected a date such as 2026-12-31, found {given!r}") from None


def _show(folder: Path, arguments: argparse.Namespace) -> None:
    """Through the report's renderers; report.html is written each time."""
    from unhang.commands.report import deliver
    from unhang.project import program_as_typed
    from unhang.report.html import render_html
    from unhang.report.json import render_json
    from unhang.report.run import read_findings
    from unhang.report.table import render_table, terminal_shape

    page = render_html(folder, run_name=arguments.run)
    run_folder.write_atomically(folder / "report.html", page)
    if arguments.format == "html":
        print(folder / "report.html")
    elif arguments.format == "json":
        deliver(render_json(read_findings(folder)), "-")
    else:
        width, colour, plain = terminal_shape(sys.stdout, os.environ)
        table = render_table(read_findings(folder), width, colour, plain=plain, full=not sys.stdout.isatty(), run=arguments.run, program=program_as_typed())
        deliver(table, "-")
