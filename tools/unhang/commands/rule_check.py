"""`unhang rule check DIR`: checks a folder of rules, each on its own examples, and names file and line of each fault."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.audit.rules.compiled_catalogue import Catalogue, load_catalogue
from unhang.audit.rules.examples import catalogue_view, check_examples
from unhang.audit.rules.row_faults import row_faults
from unhang.audit.rules.rules import Rule
from unhang.audit.rules.values import printable
from unhang.core.catalogue.kept_yaml import PACKAGE
from unhang.core.catalogue.reading import own_folders, read_folders
from unhang.jobs.commands.signature_check import signature_faults
from unhang.core.commands.common_options import add_examples
from unhang.core.errors import UserError
from unhang.core.limits import Limits, Stopped, run_limited
from unhang.core.project import find_project
from unhang.core.text import counted

EXAMPLES = """\
  unhang rule check site/rules                          the folder that unhang audit --rules site/rules reads
  unhang rule check tools/unhang/audit/catalogue/rules/nccl   a folder of the catalogue itself"""
MOST_MACHINES = 4


@dataclass(frozen=True)
class Checked:
    """What was found in a folder. faults, remarks: one line each; rules, rows: how many of the rules and of the tables' rows."""

    faults: tuple[str, ...]
    remarks: tuple[str, ...]
    rules: int
    rows: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder with rules of your own, or one of the catalogue")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 if there are faults. A rule of your own that finds something on a healthy machine is a remark: only its site knows what it wants."""
    folder: Path = arguments.folder
    found = limited_reading(lambda mark: check_folder(folder, mark))
    for line in (*found.faults, *found.remarks):
        print(printable(line))
    if not found.faults:
        print(f"{folder}: {counted(found.rules, 'rule')}, {counted(found.rows, 'row')} of tables, no fault")
    return int(bool(found.faults))


def check_folder(folder: Path, mark: Any) -> Checked:
    """What is found in this folder only; its rules may use the tables of the project's own catalogue. mark(rule id): called before a rule is judged."""
    own = load_catalogue()
    if folder.resolve().is_relative_to(PACKAGE):
        return _check_own(folder.resolve(), own, mark)
    catalogue = load_catalogue([folder])
    known = {rule.id for rule in own.rules}
    rules = [rule for rule in catalogue.rules if rule.id not in known]
    faults = [fault for fault in catalogue.faults if fault not in own.faults]
    faults += [f"{folder}: {one}" for one in _row_faults(rules, catalogue, mark)]
    remarks = [f"{folder}: {one}; nothing to do if you want that" for one in _on_healthy_machines(rules, catalogue, mark)]
    return Checked(tuple(faults), tuple(remarks), len(rules), len(catalogue.table_rows) - len(own.table_rows))


def _check_own(folder: Path, own: Catalogue, mark: Any) -> Checked:
    """The same for the catalogue, or a part of it. Whatever its tests refuse is a fault."""
    parts = [max(folder, one) for one in own_folders() if folder.is_relative_to(one) or one.is_relative_to(folder)]
    ids = {row["id"] for file in read_folders(parts, []) for _, row in file.rows}
    rules = [rule for rule in own.rules if rule.id in ids]
    faults = [fault for fault in own.faults if not fault.startswith(str(PACKAGE)) or fault.startswith(str(folder))]
    faults += [f"{folder}: {one}" for one in _row_faults(rules, own, mark)]
    faults += [f"{folder}: {one}; narrow the condition, or give the reason there (above_info)" for one in _on_healthy_machines(rules, own, mark)]
    faults += signature_faults(folder)
    return Checked(tuple(faults), (), len(rules), len(own.table_rows) if folder == PACKAGE or folder.name == "tables" else 0)


def _row_faults(rules: list[Rule], catalogue: Catalogue, mark: Any) -> Iterator[str]:
    ids = tuple(rule.id for rule in catalogue.rules)
    for rule in rules:
        mark(rule.id)
        yield from (f"{rule.id}: {fault}" for fault in row_faults(rule))
        yield from map(str, check_examples(rule, catalogue.tables, ids))


def _on_healthy_machines(rules: list[Rule], catalogue: Catalogue, mark: Any) -> Iterator[str]:
    """Rules above info that find something on healthy machines, which the tests of a checkout have; a wheel has none."""
    support = find_project() / "tests" / "support"
    if not (support / "gallery.py").is_file():
        return
    sys.path.append(str(support))  # of the child in which rules are judged
    gallery = importlib.import_module("gallery")
    machines, view = gallery.read_gallery(), catalogue_view(catalogue.tables, tuple(rule.id for rule in catalogue.rules))
    for rule in rules:
        mark(rule.id)
        if names := gallery.alarms(rule, machines, view):
            more = " …" if len(names) > MOST_MACHINES else ""
            yield f"{rule.id}: finds something on healthy machines ({gallery.GALLERY}): {', '.join(names[:MOST_MACHINES])}{more}"


def limited_reading(work: Any) -> Any:
    """What work(mark) returns, within limits of time and memory. Raises UserError."""
    found = run_limited(work, Limits())
    if isinstance(found, Stopped):
        raise UserError(f"reading the rules was stopped: it used up its {found.by}{'; last at ' + found.at if found.at else ''}")
    return found
