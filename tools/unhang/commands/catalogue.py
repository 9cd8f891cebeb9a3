"""`unhang catalogue`: lists the rules and the rows of tables, shows which of them are old, or checks a folder of rules."""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unhang.audit.judge.compiled_catalogue import Catalogue, load_catalogue
from unhang.audit.judge.examples import catalogue_view, check_examples
from unhang.audit.judge.gallery import alarms, find_gallery, read_gallery
from unhang.audit.judge.limits import Limits, Stopped, run_limited
from unhang.audit.judge.node_rules import CatalogueView
from unhang.audit.judge.rules import SEVERITIES, Rule
from unhang.audit.judge.values import printable
from unhang.base.errors import UserError
from unhang.base.project import find_project
from unhang.base.text import counted, wrapped
from unhang.catalogue.tables import date_fault, stale
from unhang.commands.catalogue_new import add_new_arguments, print_new_row
from unhang.commands.common_options import add_examples, add_format_option, add_quiet, add_rule_and_severity, check_rules, takes
from unhang.commands.row_output import show_rows

FORMATS = ("table", "name", "csv", "json", "jsonl")
COLUMNS = ("id", "kind", "severity", "scope", "confidence", "title")
EXAMPLES = """\
  unhang catalogue --rule 'nccl-*' --severity error,critical   the rules about NCCL that matter most
  unhang catalogue -o name --rule 'driver-*'                   their ids, one a line
  unhang catalogue --new numa-on --when limits.numa_balancing  a row for a new rule, with examples that prove it
  unhang catalogue --check DIR                                 whether your own rules are right
  unhang catalogue --stale 90d                                 tables that were not compared with their sources for so long"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to list or check."""
    add_format_option(parser, FORMATS, {"name": "ids, one a line"})
    add_quiet(parser)
    add_rule_and_severity(parser, "gpu-gives-no-handle, 'nccl-*'", SEVERITIES)
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="a folder with additional rules; repeatable")
    parser.add_argument("--stale", metavar="AGE", help="list tables not compared with their sources since: 90d, 6m, 1y or 2026-01-01; exit code 1 if any")
    parser.add_argument("--check", metavar="DIR", help="check this folder of rules: exit code 0, or 1 with file and line of each fault")
    add_new_arguments(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 when --check finds faults; rules that cannot be listed raise UserError."""
    if arguments.new is not None:
        return print_new_row(arguments)
    if arguments.check is not None:
        return _check(Path(arguments.check))
    folders = [Path(one) for one in arguments.rules]
    if arguments.stale is not None:
        return _stale(folders, day_of(arguments.stale, datetime.datetime.now().astimezone().date()), arguments.format)
    rows, faults = _limited(lambda mark: _rows(load_catalogue(folders)))
    if faults:
        raise UserError("\n".join(faults))
    check_rules(arguments.rule, [row["id"] for row in rows], "`unhang catalogue`")
    rows = [row for row in rows if takes(row["id"], row.get("severity"), arguments, SEVERITIES)]
    if arguments.format == "json" and not arguments.quiet:
        print(json.dumps({"rows": rows}, ensure_ascii=False, indent=1))
    else:
        show_rows(arguments, lambda width: _table(rows, width), rows, COLUMNS, "id", lines_stay=True)
    return 0


def day_of(age: str, today: datetime.date) -> str:
    """The day for an age (90d, 12w, 6m, 1y before today) or a date. Raises UserError."""
    if date_fault(age) is None:
        return age
    found = re.fullmatch(r"([0-9]{1,3})([dwmy])", age)
    if found is None:
        raise UserError(f"--stale: expected an age such as 90d, 12w, 6m or 1y, or a day such as 2026-01-01, found {printable(age)!r}")
    days = int(found.group(1)) * {"d": 1, "w": 7, "m": 30, "y": 365}[found.group(2)]
    return (today - datetime.timedelta(days=days)).isoformat()


def _stale(folders: list[Path], before: str, form: str) -> int:
    """Prints older tables and rows; 1 if there are any."""
    found, faults = _limited(lambda mark: _older(folders, before))
    if faults:
        raise UserError("\n".join(faults))
    if form == "json":
        print(json.dumps({"before": before, "stale": [{"table": name, "as_of": day, "rows": rows} for name, day, rows in found]}, indent=1))
    else:
        for name, day, rows in found:
            print(f"{name}: {counted(rows, 'row')}, {'last compared with the sources on ' + day if day else 'no date of a comparison'}")
        print(f"{counted(len(found), 'table or part of a table', 'tables or parts of tables')} older than {before}")
    return int(bool(found))


def _older(folders: list[Path], before: str) -> tuple[list[tuple[str, str | None, int]], list[str]]:
    catalogue = load_catalogue(folders)
    return list(stale(catalogue.tables, before)), list(catalogue.faults)


def _limited(work: Any) -> Any:
    found = run_limited(work, Limits())
    if isinstance(found, Stopped):
        raise UserError(f"reading the rules was stopped: it used up its {found.by}{'; last at ' + found.at if found.at else ''}")
    return found


def _check(folder: Path) -> int:
    faults, rules, rows = _limited(lambda mark: _faults(folder, mark))
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
    from unhang.catalogue.reading import BUILT_IN, OWN_FOLDERS

    return folder.resolve() in (BUILT_IN, *(BUILT_IN / name for name in OWN_FOLDERS))


def _rows(catalogue: Catalogue) -> tuple[list[dict[str, Any]], list[str]]:
    rows = [
        {
            "id": rule.id, "kind": "rule", "confidence": rule.row["confidence"], "sources": rule.row["sources"],
            "title": rule.row["title"], "severity": rule.severity, "scope": rule.scope,
        }
        for rule in catalogue.rules
    ]  # fmt: skip
    entries = [
        {"id": row["id"], "kind": "entry", "confidence": row["confidence"], "sources": row["sources"], "title": row["title"], "known_to": row["known_to"]}
        for row in catalogue.entries
    ]
    return rows + entries + _signatures() + [dict(row) for row in catalogue.table_rows], list(catalogue.faults)


def _signatures() -> list[dict[str, Any]]:
    """The signatures of `unhang diagnose`, and the causes that they support."""
    from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures

    signatures = [
        {
            "id": f"signatures/{one.id}", "kind": "signature", "confidence": one.confidence, "sources": [dict(source) for source in one.sources],
            "title": one.says, "for": dict(one.for_),
        }
        for one in load_signatures()
    ]  # fmt: skip
    causes = [
        {"id": f"causes/{name}", "kind": "cause", "confidence": row["confidence"], "sources": row["sources"], "title": row["title"]}
        for name, row in load_causes().items()
    ]
    return signatures + causes


def _table(rows: list[dict[str, Any]], width: int) -> list[str]:
    """A line for each row; where one is wider than `width` columns, the ids stand alone and the rest is wrapped below them."""
    longest = max((len(row["id"]) for row in rows), default=2)
    lines = [f"{row['id']:<{longest}}  {row.get('severity', row['kind']):<9}  {row['confidence']:<11}  {row.get('title', '')}".rstrip() for row in rows]
    if max(map(len, lines), default=0) > width:
        lines = [line for row in rows for line in _entry(row, width)]
    return [*lines, counted(len(rows), "row")]


def _entry(row: dict[str, Any], width: int) -> list[str]:
    title = f": {row['title']}" if row.get("title") else ""
    return [row["id"], *wrapped(f"  {row.get('severity', row['kind'])}, {row['confidence']}{title}", width, 4)]
