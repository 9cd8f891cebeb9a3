"""`unhang catalogue check DIR`: checks a folder of rules, each on its own examples, and names file
and line of each fault."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.core.catalogue.own_files import is_built_in
from unhang.core.commands.common_options import add_examples
from unhang.core.errors import UserError
from unhang.core.limits import Limits, Stopped, run_limited
from unhang.core.project import find_project
from unhang.core.text import counted
from unhang.judge.rules.compiled_catalogue import Catalogue, load_catalogue
from unhang.judge.rules.examples import check_examples
from unhang.judge.rules.faults_among_rules import faults_among_rules, fires_too, view_of
from unhang.judge.rules.role_faults import role_faults
from unhang.judge.rules.row_faults import row_faults
from unhang.judge.rules.rules import Rule
from unhang.judge.rules.values import printable

EXAMPLES = """\
  unhang catalogue check site/rules     the folder that unhang audit --rules site/rules reads"""
MOST_CPU_S = 600  # for the whole catalogue: each rule is judged on the examples of all others


@dataclass(frozen=True)
class Checked:
    """What was found in a folder. faults, remarks: one line each; rules, rows: how many of the
    rules and of the tables' rows."""

    faults: tuple[str, ...]
    remarks: tuple[str, ...]
    rules: int
    rows: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        help="a folder with rules of your own",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 if there are faults. A rule of your own that finds something on a healthy machine is
    a remark: only its site knows what it wants."""
    folder: Path = arguments.folder
    found = limited_reading(lambda mark: check_folder(folder, mark))
    for line in (*found.faults, *found.remarks):
        print(printable(line))
    if not found.faults:
        print(
            f"{folder}: {counted(found.rules, 'rule')}, {counted(found.rows, 'row')} of tables, no"
            " fault"
        )
    return int(bool(found.faults))


def check_folder(folder: Path, mark: Any) -> Checked:
    """What is found in this folder only; its rules may use the tables of the project's own
    catalogue. mark(rule id): called before a rule is judged. Raises UserError for a folder of that
    catalogue."""
    if is_built_in(folder.resolve()):
        raise UserError(
            f"{folder} has no rules of your own; the catalogue's tests check its own: python -P -m"
            " pytest tests/rows"
        )
    own = load_catalogue()
    catalogue = load_catalogue([folder])
    known = {rule.id for rule in own.rules}
    rules = [rule for rule in catalogue.rules if rule.id not in known]
    faults = [fault for fault in catalogue.faults if fault not in own.faults]
    faults += [f"{folder}: {one}" for one in _rule_faults(rules, catalogue, mark)]
    remarks = [
        f"{folder}: {one}; nothing to do if you want that"
        for one in (*_alarms(rules, catalogue, mark), *_firing_too(rules, catalogue, mark))
    ]
    return Checked(
        tuple(faults), tuple(remarks), len(rules), len(catalogue.table_rows) - len(own.table_rows)
    )


def _rule_faults(rules: list[Rule], catalogue: Catalogue, mark: Any) -> Iterator[str]:
    """Faults of the rules, wherever they lie: of the row, of its examples, and, if these are as
    they should be, among the other rules."""
    ids = tuple(rule.id for rule in catalogue.rules)
    for rule in rules:
        mark(rule.id)
        yield from (
            f"{rule.id}: {fault}" for fault in (*row_faults(rule), *role_faults(rule.row["remedy"]))
        )
        wrong = [str(one) for one in check_examples(rule, catalogue.tables, ids)]
        yield from wrong or (f"{rule.id}: {fault}" for fault in faults_among_rules(rule, catalogue))


def _firing_too(rules: list[Rule], catalogue: Catalogue, mark: Any) -> Iterator[str]:
    for rule in rules:
        mark(rule.id)
        if others := fires_too(rule, catalogue):
            yield (
                f"{rule.id}: also lacks {', '.join(sorted(others))}, which fires on its examples"
                " too"
            )


def _alarms(rules: list[Rule], catalogue: Catalogue, mark: Any) -> Iterator[str]:
    """Rules above info that find something on healthy machines, which the tests of a checkout have;
    a wheel has none."""
    support = find_project() / "tests" / "support"
    if not (support / "healthy_machines.py").is_file():
        return
    sys.path.append(str(support))  # of the child in which rules are judged
    machines, view = importlib.import_module("healthy_machines"), view_of(catalogue)
    for rule in rules:
        mark(rule.id)
        yield from (f"{rule.id}: {line}" for line in machines.alarms_on_healthy(rule, view))


def limited_reading(work: Any) -> Any:
    """What work(mark) returns, within limits of time and memory. Raises UserError."""
    found = run_limited(work, Limits(cpu_s=MOST_CPU_S))
    if isinstance(found, Stopped):
        raise UserError(
            "reading the rules was stopped: it used up its"
            f" {found.by}{'; last at ' + found.at if found.at else ''}"
        )
    return found
