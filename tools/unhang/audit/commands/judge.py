"""`unhang judge RUN`: judges a run folder again, off-line, and shows the findings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unhang.audit.commands.fail_on import exit_code
from unhang.audit.commands.filters import filtered
from unhang.audit.commands.judging_options import JudgingOptions, add_judging_options
from unhang.audit.commands.node_documents import is_document, run_of_documents
from unhang.audit.commands.run_output import check_page, page_of, show
from unhang.core.commands.common_options import (
    add_examples,
    add_value,
)
from unhang.core.commands.typed_values import today_or
from unhang.core.errors import UserError
from unhang.core.path_arguments import checked_output
from unhang.core.project import program_as_typed
from unhang.core.run import run_folder
from unhang.core.run.findings import read_findings
from unhang.core.run.handed_over import HandedOver
from unhang.core.text import counted
from unhang.judge.rules.values import printable
from unhang.judge.triage.run_judging import SHOWN_FAULTS, judge_folder

EXAMPLES = """\
  unhang judge                                            the last run again
  unhang judge latest --policy next.yml --rules my-rules  by another policy and your own rules, beside the run's findings
  unhang judge node1.json node2.json                      files of unhang collect, without Ansible
  unhang collect | unhang judge -                         this machine
  for n in gpu1 gpu2; do ssh $n python3 -I -S unhang-collect.pyz; done | unhang judge -   several, one document after another"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help_text = (
        f"run folder or its id (default: {run_folder.latest_run()}); or documents of unhang"
        " collect: files, a folder of them, - for standard input"
    )
    parser.add_argument("run", metavar="RUN|FILE", nargs="*", help=help_text.replace("%", "%%"))
    add_value(
        parser,
        "--out",
        "FILE",
        "write the findings to this file and the HTML report beside it; the run's own files"
        " stay unchanged",
    )
    add_judging_options(
        parser, "the run's own; the findings are written beside the run's", is_new=False
    )
    add_value(
        parser,
        "--now",
        "DATE",
        "the day to check waivers against, for example 2026-12-31 (default: today)",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace, given: HandedOver) -> int:
    """0 nothing found, 1 findings at or above --fail-on or nodes that were not read, 2 an
    incomplete result. Raises UserError if there is no result."""
    named, options = _run(arguments.run), JudgingOptions.of(arguments)
    folder = run_folder.find_run(named)
    check_page(options)
    out, today = _findings_file(folder, arguments.out, options.policy), today_or(arguments.now)
    try:
        return judge_run(folder, named, options, given, today, out)
    except KeyboardInterrupt:
        raise UserError(
            f"it was stopped by hand; judge it again with: {program_as_typed()} judge"
            f" {run_folder.as_typed(folder)}"
        ) from None


def _check_folders(rules: list[str]) -> None:
    """Raises UserError for a folder of rules that does not exist or is empty: the run's findings
    would be replaced as if they had been judged by its rules."""
    for one in rules:
        if not any(Path(one).rglob("*.y*ml")):
            what = "holds no .yml files of rules" if Path(one).is_dir() else "is no folder of rules"
            raise UserError(f"--rules: {one} {what}; nothing was judged")


def judge_run(
    folder: Path,
    named: str,
    options: JudgingOptions,
    given: HandedOver,
    today: str,
    out: Path | None = None,
) -> int:
    """Judges it on a day, writes its findings, the run's own without `out`, and shows them: the
    exit code of run(). named: the run as it was typed."""
    _check_folders(options.rules)
    head = judge_folder(
        folder,
        [Path(one) for one in options.rules],
        options.policy,
        today,
        out=out,
        repairs=given.repairs,
    )
    if out is not None:
        named = run_folder.as_typed(out)
    page = _page_beside(out) if out is not None else folder / "report.html"
    judged = read_findings(folder, out)
    text = page_of(folder, judged, named, given, out)
    run_folder.write_atomically(page, text)
    findings = filtered(folder, judged, options)
    show(folder, findings, options, named, lambda: text, page=page)
    if problems := list(_problems(head)):
        print("\n".join(f"unhang: {printable(one)}" for one in problems), file=sys.stderr)
        return 2
    return exit_code(findings, options.fail_on)


def _page_beside(findings: Path) -> Path:
    """findings-by-next.json has report-by-next.html."""
    page = findings.with_name(findings.name.replace("findings", "report", 1)).with_suffix(".html")
    return page if page != findings else findings.with_suffix(".page.html")


def _run(given: list[str]) -> str:
    """The run to judge, as a person types it; node documents are made into a run."""
    if not given:
        return run_folder.latest_run()
    if len(given) == 1 and not is_document(given[0]):
        return given[0]
    return run_folder.as_typed(run_of_documents(given))


def _findings_file(folder: Path, out: str | None, policy: str | None) -> Path | None:
    """Path of findings that are not the run's own: findings under another policy are written beside
    the run's own, never over them."""
    if out:
        return checked_output(out).absolute()
    return (
        folder / f"findings-by-{run_folder.file_stem(Path(policy).stem)}.json" if policy else None
    )


def _problems(head: dict[str, Any]) -> Iterator[str]:
    """Reasons why the result is incomplete: rules that could not be used, or no node that was
    read."""
    refused = head["catalogue"]["refused"]
    yield from refused[:SHOWN_FAULTS]
    if refused:
        more = (
            f" ({len(refused) - SHOWN_FAULTS:,} not shown)" if len(refused) > SHOWN_FAULTS else ""
        )
        unused = (
            "the rule or file that has it was"
            if len(refused) == 1
            else "the rules and files that have them were"
        )
        yield (
            f"{counted(len(refused), 'fault')} in rules{more}: {unused} not used, the findings of"
            " the others are valid; next: unhang catalogue check DIR"
        )
    for rule in head["catalogue"]["stopped"]:
        yield (
            f"rule {rule} was stopped and left out: it used up the time or memory that judging may"
            " take"
        )
    if head["host_count"] and len(head["node_verdicts"]["unread"]) == head["host_count"]:
        yield "no node was read"
