"""`unhang catalogue`: lists the rules and the rows of tables, or shows which of them are old."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unhang.audit.history.runs import moment_of
from unhang.commands.catalogue_check import limited_reading
from unhang.core.commands.common_options import (
    add_examples,
    add_format_option,
    add_quiet,
    add_rules,
    add_value,
)
from unhang.core.commands.row_filters import add_rule_and_severity, check_rules, selected
from unhang.core.commands.row_output import FORMATS, show_rows
from unhang.core.errors import UserError
from unhang.core.text import counted, wrapped
from unhang.judge.rules.compiled_catalogue import Catalogue, load_catalogue
from unhang.judge.rules.rules import SEVERITIES

COLUMNS = ("id", "kind", "severity", "scope", "confidence", "title")
EXAMPLES = """\
  unhang catalogue --rule 'nccl-*' --severity error,critical   the rules about NCCL that matter most
  unhang catalogue -o csv --rule 'driver-*' | cut -d, -f1      their ids, one a line
  unhang catalogue check site/rules                            a folder with rules of your own: one line for each fault
  unhang catalogue --stale 90d                                 tables that were not compared with their sources for so long"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_format_option(parser, FORMATS)
    add_quiet(parser)
    add_rule_and_severity(parser, "gpu-gives-no-handle, 'nccl-*'", SEVERITIES)
    add_rules(parser)
    add_value(
        parser,
        "--stale",
        "AGE",
        "list tables not compared with their sources since: 90d, 6m, 1y or 2026-01-01; exit"
        " code 1 if any",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 when --stale finds any; rules that cannot be listed raise UserError."""
    folders = [Path(one) for one in arguments.rules]
    if arguments.stale is not None:
        return _stale(
            folders,
            moment_of(arguments.stale, datetime.datetime.now(datetime.UTC), "--stale")
            .date()
            .isoformat(),
            arguments.format,
        )
    rows, faults = limited_reading(lambda mark: _rows(load_catalogue(folders)))
    if faults:
        raise UserError("\n".join(faults))
    check_rules(arguments.rule, [row["id"] for row in rows], "`unhang catalogue`")
    rows = selected(rows, "id", (arguments.rule, arguments.severity), SEVERITIES)
    if arguments.format == "json" and not arguments.quiet:
        print(json.dumps({"rows": rows}, ensure_ascii=False, indent=1))
    else:
        show_rows(
            arguments.format,
            arguments.quiet,
            lambda width: _table(rows, width),
            rows,
            COLUMNS,
            lines_stay=True,
        )
    return 0


def _stale(folders: list[Path], before: str, form: str) -> int:
    """Prints older tables and rows; 1 if there are any."""
    found, faults = limited_reading(lambda mark: _older(folders, before))
    if faults:
        raise UserError("\n".join(faults))
    if form == "json":
        print(
            json.dumps(
                {
                    "before": before,
                    "stale": [
                        {"table": name, "as_of": day, "rows": rows} for name, day, rows in found
                    ],
                },
                indent=1,
            )
        )
    else:
        for name, day, rows in found:
            print(
                f"{name}: {counted(rows, 'row')},"
                f" {'last compared with the sources on ' + day if day else 'no date of a comparison'}"  # noqa: E501
            )
        print(
            f"{counted(len(found), 'table or part of a table', 'tables or parts of tables')} older"
            f" than {before}"
        )
    return int(bool(found))


def _older(folders: list[Path], before: str) -> tuple[list[tuple[str, str | None, int]], list[str]]:
    catalogue = load_catalogue(folders)
    return list(older_than(catalogue.tables, before)), list(catalogue.faults)


def older_than(
    tables: Mapping[str, Mapping[str, Any]], before: str
) -> Iterator[tuple[str, str | None, int]]:
    """(table, day on which it was last compared with its sources, how many of its rows) for tables
    and rows that are older than the day `before`. A table, or a row, without a day is listed with
    None, because its age is unknown."""
    for name, table in tables.items():
        whole = getattr(table, "row", {}).get("as_of")
        days: dict[str | None, int] = {}
        for row in table.values():
            day = row.get("as_of", whole)
            if day is None or day < before:
                days[day] = days.get(day, 0) + 1
        for day, count in sorted(days.items(), key=lambda one: one[0] or ""):
            yield name, day, count


def _rows(catalogue: Catalogue) -> tuple[list[dict[str, Any]], list[str]]:
    rows = [
        {
            "id": rule.id, "kind": "rule", "confidence": rule.row["confidence"],
            "sources": rule.row["sources"],
            "title": rule.row["title"], "severity": rule.severity, "scope": rule.scope,
        }
        for rule in catalogue.rules
    ]  # fmt: skip
    entries = [
        {
            "id": row["id"],
            "kind": "entry",
            "confidence": row["confidence"],
            "sources": row["sources"],
            "title": row["title"],
            "known_to": row["known_to"],
        }
        for row in catalogue.entries
    ]
    return rows + entries + _signatures() + [dict(row) for row in catalogue.table_rows], list(
        catalogue.faults
    )


def _signatures() -> list[dict[str, Any]]:
    """The signatures of `unhang diagnose`, and the causes that they support."""
    from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures

    signatures = [
        {
            "id": f"signatures/{one.id}", "kind": "signature", "confidence": one.confidence,
            "sources": [dict(source) for source in one.sources],
            "title": one.says, "for": dict(one.for_),
        }
        for one in load_signatures()
    ]  # fmt: skip
    causes = [
        {
            "id": f"causes/{name}",
            "kind": "cause",
            "confidence": row["confidence"],
            "sources": row["sources"],
            "title": row["title"],
        }
        for name, row in load_causes().items()
    ]
    return signatures + causes


def _table(rows: list[dict[str, Any]], width: int) -> list[str]:
    """A line for each row; where one is wider than `width` columns, the ids stand alone and the
    rest is wrapped below them."""
    longest = max((len(row["id"]) for row in rows), default=2)
    lines = [
        f"{row['id']:<{longest}}  {row.get('severity', row['kind']):<9}  {row['confidence']:<11} "
        f" {row.get('title', '')}".rstrip()
        for row in rows
    ]
    if max(map(len, lines), default=0) > width:
        lines = [line for row in rows for line in _entry(row, width)]
    return [*lines, counted(len(rows), "row")]


def _entry(row: dict[str, Any], width: int) -> list[str]:
    title = f": {row['title']}" if row.get("title") else ""
    return [
        row["id"],
        *wrapped(f"  {row.get('severity', row['kind'])}, {row['confidence']}{title}", width, 4),
    ]
