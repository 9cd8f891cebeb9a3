"""`unhang judge RUN`: judges a run folder again, off-line, and shows what was found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unhang import run_folder
from unhang.ansible.playbook_command import as_typed
from unhang.commands.common_options import add_examples, given_day
from unhang.commands.fail_on import add_fail_on, exit_code
from unhang.commands.filters import add_filters, filtered
from unhang.commands.given_nodes import is_document, run_of_documents
from unhang.commands.showing import add_format, check_page, commands_here, page_of, show
from unhang.errors import UserError
from unhang.given_files import checked_output
from unhang.history.node_pasts import node_pasts
from unhang.judge.values import printable
from unhang.plan.plan_view import plan_view
from unhang.plan.promise import Promise
from unhang.project import program_as_typed
from unhang.report.run import read_findings
from unhang.rollout.status_view import rollout_view
from unhang.triage.run_judging import SHOWN_FAULTS, judge_folder

EXAMPLES = """\
  unhang judge                                            the last run again
  unhang judge latest --policy next.yml --rules my-rules  by another policy and your own rules, beside the run's findings
  unhang judge node1.json node2.json                      files of unhang collect, without Ansible
  unhang collect | unhang judge -                         this machine"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, by which rules and policy, and how to show it."""
    help_text = f"run folder or its id (default: {run_folder.latest_run()}); or documents of unhang collect: files, a folder of them, - for standard input"
    parser.add_argument("run", metavar="RUN|FILE", nargs="*", help=help_text.replace("%", "%%"))
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="a folder with additional rules; repeatable")
    parser.add_argument("--policy", metavar="FILE", help="use this policy instead of the run's own; the findings are written beside the run's")
    parser.add_argument("--out", metavar="FILE", help="write the findings to this file and the HTML report beside it; the run's own files stay unchanged")
    add_format(parser)
    add_filters(parser)
    add_fail_on(parser)
    parser.add_argument("--now", metavar="DATE", help="the day to check waivers against, for example 2026-12-31 (default: today)")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0 nothing found, 1 findings at or above --fail-on or nodes that were not read, 2 not the whole answer. Raises UserError when there is none."""
    arguments.run = _run(arguments.run)
    folder = run_folder.find_run(arguments.run)
    check_page(arguments)
    try:
        return _judged(folder, arguments)
    except KeyboardInterrupt:
        if getattr(arguments, "is_record", False):
            raise  # the audit says how to go on
        raise UserError(f"stopped by hand; judge it again with: {program_as_typed()} judge {as_typed(folder)}") from None


def _judged(folder: Path, arguments: argparse.Namespace) -> int:
    today = given_day(arguments.now)
    out = _findings_file(folder, arguments)
    head = judge_folder(folder, [Path(one) for one in arguments.rules], arguments.policy, today, out=out, promise=lambda catalogue: Promise(catalogue, today))
    if out is not None:
        arguments.run = as_typed(out)
    getattr(arguments, "once_judged", lambda: None)()
    page = _page_beside(out) if out is not None else folder / "report.html"
    plan = plan_view(folder) if out is None else None
    rollout = rollout_view(folder) if out is None else None
    judged = read_findings(folder, out)
    commands = commands_here(folder, judged, arguments.run)
    pasts = node_pasts(folder, getattr(arguments, "db", None))
    text = page_of(folder, arguments.run, beside=out, command_of=commands, plan=plan, rollout=rollout, pasts=pasts)
    run_folder.write_atomically(page, text)
    findings = filtered(folder, judged, arguments)
    show(folder, findings, arguments, page=page)
    if problems := list(_problems(head)):
        print("\n".join(f"unhang: {printable(one)}" for one in problems), file=sys.stderr)
        return 2
    return exit_code(findings, arguments.fail_on)


def _page_beside(findings: Path) -> Path:
    """findings-by-next.json has report-by-next.html."""
    page = findings.with_name(findings.name.replace("findings", "report", 1)).with_suffix(".html")
    return page if page != findings else findings.with_suffix(".page.html")


def _run(given: list[str]) -> str:
    """The run to judge, as a person would type it; documents of nodes become one."""
    if not given:
        return run_folder.latest_run()
    if len(given) == 1 and not is_document(given[0]):
        return given[0]
    return as_typed(run_of_documents(given))


def _findings_file(folder: Path, arguments: argparse.Namespace) -> Path | None:
    """Where the findings go when they are not the run's own: what another policy makes of a run lies beside its record, never in its place."""
    if arguments.out:
        return checked_output(arguments.out).absolute()
    if arguments.policy and getattr(arguments, "is_record", False):
        return None  # of an audit by this policy, these findings are the record
    return folder / f"findings-by-{run_folder.file_stem(Path(arguments.policy).stem)}.json" if arguments.policy else None


def _problems(head: dict[str, Any]) -> Iterator[str]:
    """Why the answer is not the whole answer: rules that could not be used, or no node that was read."""
    refused = head["catalogue"]["refused"]
    yield from refused[:SHOWN_FAULTS]
    if refused:
        more = f" and {len(refused) - SHOWN_FAULTS} more" if len(refused) > SHOWN_FAULTS else ""
        yield f"{len(refused)} rules or files of rules were not used{more}; the findings of the others stand; next: unhang catalogue --check DIR"
    for rule in head["catalogue"]["stopped"]:
        yield f"rule {rule} was stopped and left out: it used up the time or memory that judging may take"
    if head["host_count"] and len(head["node_verdicts"]["unread"]) == head["host_count"]:
        yield "no node was read"
