"""`unhang catalogue`: lists the rules and the rows of tables, or checks a folder of rules."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from unhang.catalogue import Catalogue, load_catalogue
from unhang.errors import UserError
from unhang.judge.examples import check_examples
from unhang.judge.limits import Limits, Stopped, run_limited
from unhang.judge.values import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to list or check."""
    parser.add_argument("--format", choices=("table", "json"), default="table", help="table (default) or json")
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="a folder of further rules; may be given again")
    parser.add_argument("--check", metavar="DIR", help="check this folder of rules: exit 0, or 1 with file and place of each fault")


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 when --check finds faults; rules that cannot be listed raise UserError."""
    if arguments.check is not None:
        return _check(Path(arguments.check))
    folders = [Path(one) for one in arguments.rules]
    rows, faults = _limited(lambda mark: _rows(load_catalogue(folders)))
    if faults:
        raise UserError("\n".join(faults))
    print(json.dumps({"rows": rows}, ensure_ascii=False, indent=1) if arguments.format == "json" else _table(rows))
    return 0


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
        print(f"{folder}: {rules} rules, {rows} rows of tables, no fault")
    return int(bool(faults))


def _faults(folder: Path, mark: Any) -> tuple[list[str], int, int]:
    """Faults of this folder alone; its rules may use the tables of the project's own catalogue."""
    own = load_catalogue()
    catalogue = load_catalogue([folder]) if not _is_own(folder) else own
    faults = [fault for fault in catalogue.faults if fault not in own.faults or _is_own(folder)]
    known = {rule.id for rule in own.rules} if not _is_own(folder) else set()
    rules = [rule for rule in catalogue.rules if rule.id not in known]
    ids = tuple(rule.id for rule in catalogue.rules)
    for rule in rules:
        mark(rule.id)
        faults += [f"{folder}: {shortfall}" for shortfall in check_examples(rule, catalogue.tables, ids)]
    return faults, len(rules), len(catalogue.table_rows) - (0 if _is_own(folder) else len(own.table_rows))


def _is_own(folder: Path) -> bool:
    from unhang.catalogue import BUILT_IN, OWN_FOLDERS

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
    return rows + entries + [dict(row) for row in catalogue.table_rows], list(catalogue.faults)


def _table(rows: list[dict[str, Any]]) -> str:
    width = max((len(row["id"]) for row in rows), default=2)
    lines = [f"{row['id']:<{width}}  {row.get('severity', row['kind']):<9}  {row['confidence']:<11}  {row.get('title', '')}".rstrip() for row in rows]
    return "\n".join([*lines, f"{len(rows)} rows"])
