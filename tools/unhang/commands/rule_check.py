"""`unhang rule check DIR`: checks a folder of rules, each on its own examples, and names file and line of each fault."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unhang.audit.judge.gallery import alarms, find_gallery, read_gallery
from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.rules.examples import catalogue_view, check_examples
from unhang.audit.rules.node_rules import CatalogueView
from unhang.audit.rules.rules import Rule
from unhang.audit.rules.values import printable
from unhang.core.catalogue.kept_yaml import is_built_in
from unhang.core.commands.common_options import add_examples
from unhang.core.errors import UserError
from unhang.core.limits import Limits, Stopped, run_limited
from unhang.core.project import find_project
from unhang.core.text import counted

EXAMPLES = "  unhang rule check site/rules   the folder that unhang audit --rules site/rules reads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder with rules of your own")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 if there are faults."""
    folder: Path = arguments.folder
    faults, rules, rows = limited_reading(lambda mark: _faults(folder, mark))
    for fault in faults:
        print(printable(fault))
    if not faults:
        print(f"{folder}: {counted(rules, 'rule')}, {counted(rows, 'row')} of tables, no fault")
    return int(bool(faults))


def _faults(folder: Path, mark: Any) -> tuple[list[str], int, int]:
    """Faults of this folder only; its rules may use the tables of the project's own catalogue."""
    own = load_catalogue()
    catalogue = load_catalogue([folder]) if not _is_own(folder) else own
    faults = [fault for fault in catalogue.faults if fault not in own.faults or _is_own(folder)]
    known = {rule.id for rule in own.rules} if not _is_own(folder) else set()
    rules = [rule for rule in catalogue.rules if rule.id not in known]
    ids = tuple(rule.id for rule in catalogue.rules)
    faults += [f"{folder}: {alarm}" for alarm in _alarms(rules, catalogue_view(catalogue.tables, ids), mark)]
    for rule in rules:
        mark(rule.id)
        faults += [f"{folder}: {shortfall}" for shortfall in check_examples(rule, catalogue.tables, ids)]
    if _is_own(folder):
        from unhang.jobs.diagnose.matching.signatures import load_signatures, proof_faults

        faults += [f"{folder}: signature {shortfall}" for row in load_signatures() for shortfall in proof_faults(row)]
    return faults, len(rules), len(catalogue.table_rows) - (0 if _is_own(folder) else len(own.table_rows))


def _alarms(rules: Iterable[Rule], catalogue: CatalogueView, mark: Any) -> Iterator[str]:
    """Rules above info that speak on a healthy machine of the gallery without a reason there; a wheel has no gallery."""
    folder = find_gallery(find_project())
    machines = read_gallery(folder) if folder is not None else []
    for rule in rules:
        mark(rule.id)
        if names := alarms(rule, machines, catalogue):
            yield (
                f"{rule.id}: expected silence on healthy machines, found {rule.severity} on {', '.join(names[:4])}{' …' if len(names) > 4 else ''};"
                f" narrow the condition, make it info, or give the reason in {folder} (above_info)"
            )


def _is_own(folder: Path) -> bool:
    return is_built_in(folder.resolve())


def limited_reading(work: Any) -> Any:
    """What work(mark) returns, within limits of time and memory. Raises UserError."""
    found = run_limited(work, Limits())
    if isinstance(found, Stopped):
        raise UserError(f"reading the rules was stopped: it used up its {found.by}{'; last at ' + found.at if found.at else ''}")
    return found
