"""`unhang history HOST|RULE`: when a finding or a fact began, and what else changed then; without a
name: findings that come and go."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import difflib
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from unhang.audit.commands.history_options import add_history_options, history_file
from unhang.audit.history.beginnings import (
    Beginning,
    Event,
    Holding,
    beginnings,
    events,
    holding,
    names_of,
)
from unhang.audit.history.database import reading
from unhang.audit.history.machines import names_alike
from unhang.audit.history.recurring import (
    RUNS,
    WAIVER_DAYS,
    EndingWaiver,
    Flapping,
    OwnPast,
    ending_waivers,
    flapping,
    own_pasts,
)
from unhang.audit.history.rendering import render_beginnings, render_host, render_watched
from unhang.core.commands.common_options import number_of
from unhang.core.commands.row_output import Row, show_rows
from unhang.core.errors import UserError
from unhang.core.secrets_in_text import masked_fields
from unhang.core.text import visible

EXAMPLES = """\
  unhang history                          findings that come and go, waivers about to end, busbw below a node's own past
  unhang history gpu007                   what happened to a node, and since when it has its findings
  unhang history nvlink-some-inactive     when it began, on which nodes, after which change of driver or kernel
  unhang history gpu007 -o json"""  # noqa: E501
# table, rows, columns and name, as show_rows takes them
View = tuple[Callable[[int], Sequence[str]], list[Row], tuple[str, ...], str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="HOST|RULE",
        nargs="?",
        help="a node or a rule; without it: an overview of findings to watch",
    )
    parser.add_argument(
        "--runs",
        type=number_of("runs"),
        default=RUNS,
        metavar="N",
        help="number of runs to search for findings that come and go (default: %(default)s)",
    )
    parser.add_argument(
        "--days",
        type=number_of("days"),
        default=WAIVER_DAYS,
        metavar="N",
        help="report waivers that end within this many days (default: %(default)s)",
    )
    add_history_options(parser, "nodes; runs, of a node", EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0. Raises UserError for a name that is not in the history."""
    with reading(history_file(arguments)) as connection:
        view = _view_of(connection, arguments)
    show_rows(arguments, *view)
    return 0


def _view_of(connection: sqlite3.Connection, arguments: argparse.Namespace) -> View:
    name = arguments.name
    if name is None:
        return _watched(connection, arguments)
    hosts, rules = names_of(connection, "hosts"), names_of(connection, "rules")
    if alike := names_alike(connection, name):
        if len(alike) > 1:
            others = ", ".join(visible(one, 120) for one in alike[1:20])
            sys.stderr.write(
                f"unhang: {len(alike)} machines are called {visible(name, 80)}; this is"
                f" {visible(alike[0], 120)}, met last; the others: {others}\n"
            )
        return _of_host(connection, alike[0])
    if name in rules:
        return _of_rule(connection, name)
    near = difflib.get_close_matches(name, [*hosts, *rules], 1)
    advice = (
        f"did you mean {near[0]}?"
        if near
        else "a rule is known once it found something; unhang explain NAME says what one is about"
    )
    raise UserError(f"expected a node or rule of the history, found none named {name!r}; {advice}")


def _of_rule(connection: sqlite3.Connection, name: str) -> View:
    found = beginnings(connection, name)
    (title,) = connection.execute("SELECT title FROM rules WHERE name = ?", (name,)).fetchone()
    return (
        lambda width: render_beginnings(name, title, masked_fields(found), width),
        [asdict(one) for one in found],
        _columns(Beginning),
        "hosts",
    )


def _of_host(connection: sqlite3.Connection, name: str) -> View:
    held, happened, pasts = (
        holding(connection, name),
        events(connection, name),
        own_pasts(connection, name),
    )
    rows = _rows(event=happened, holds=held, busbw=pasts)
    return (
        lambda width: render_host(name, masked_fields(held), masked_fields(happened), pasts, width),
        rows,
        ("kind", *_columns(Event, Holding, OwnPast)),
        "run",
    )


def _watched(connection: sqlite3.Connection, arguments: argparse.Namespace) -> View:
    today = datetime.datetime.now(datetime.UTC).date()
    coming, waivers, pasts = (
        flapping(connection, arguments.runs),
        ending_waivers(connection, today, arguments.days),
        own_pasts(connection),
    )
    rows = _rows(flapping=coming, waiver=waivers, busbw=[one for one in pasts if one.slower])
    named: list[Row] = [{**row, "hosts": row.get("hosts") or [row["host"]]} for row in rows]
    columns = ("kind", *_columns(Flapping, EndingWaiver, OwnPast))
    return (
        lambda width: render_watched(
            masked_fields(coming),
            masked_fields(waivers),
            pasts,
            arguments.runs,
            arguments.days,
            width,
        ),
        named,
        columns,
        "hosts",
    )


def _rows(**kinds: Sequence[Any]) -> list[Row]:
    """Rows of several kinds, each with the keys of all."""
    named = [(kind, asdict(one)) for kind, several in kinds.items() for one in several]
    keys = dict.fromkeys(key for _, row in named for key in row)
    return [{"kind": kind, **keys, **row} for kind, row in named]


def _columns(*kinds: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for kind in kinds for field in dataclasses.fields(kind)))
