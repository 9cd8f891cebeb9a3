"""`unhang history`: lists the runs; says what happened to a node or a rule in them; removes old run
folders."""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from unhang.audit.history.past import MOST_RUNS, Event, events_of_host, events_of_rule, names
from unhang.audit.history.pruning import RunOnDisk, runs_on_disk, to_prune
from unhang.audit.history.rendering import render_events, render_runs
from unhang.audit.history.runs import PastRun, counts, moment_of, past_runs
from unhang.core.commands.common_options import (
    add_examples,
    add_flag,
    add_format_option,
    add_quiet,
    add_value,
)
from unhang.core.commands.row_output import FORMATS, Row, show_rows
from unhang.core.commands.typed_values import number_of
from unhang.core.errors import UserError
from unhang.core.run.findings import NODE_VERDICTS
from unhang.core.run.run_folder import runs_folder
from unhang.core.schemas.reading import nearest
from unhang.core.secrets_in_text import masked_fields
from unhang.core.text import counted, visible

EXAMPLES = """\
  unhang history                             the last runs: when, how many nodes, by verdict
  unhang history gpu007                      what happened to a node, and since when it has its findings
  unhang history nvlink-some-inactive        when it began, on which nodes, after which change of driver or kernel
  unhang history diff --since yesterday      what changed since then
  unhang history --prune --older-than 90d    which run folders would go; --apply removes them"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="HOST|RULE", nargs="?", help="a node or a rule; without it: the runs"
    )
    parser.add_argument(
        "-n",
        "--newest",
        type=number_of("runs"),
        default=MOST_RUNS,
        metavar="N",
        help="number of newest runs to read, 0 for all (default: %(default)s)",
    )
    add_flag(parser, "--prune", "list run folders that are old enough to remove")
    add_value(parser, "--keep", "N", "with --prune: keep the newest N", number_of("run folders"))
    add_value(
        parser,
        "--older-than",
        "TIME",
        "with --prune: keep runs younger than this: 12h, 90d, 8w, or since a day: 2026-11-20",
    )
    add_flag(parser, "--apply", "with --prune: remove them")
    add_format_option(parser, FORMATS)
    add_quiet(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0; 1 when a run folder could not be removed. Raises UserError."""
    if arguments.prune:
        return _prune(arguments.keep, arguments.older_than, arguments.apply, arguments.quiet)
    alone = {
        "--keep": arguments.keep, "--older-than": arguments.older_than, "--apply": arguments.apply
    }  # fmt: skip
    if given := [name for name, value in alone.items() if value]:
        raise UserError(f"{given[0]} needs --prune; see unhang history --help")
    runs = past_runs()[-arguments.newest :]
    if arguments.name is None:
        rows = [_row(one) for one in runs]
        show_rows(
            arguments.format,
            arguments.quiet,
            lambda width: _listing(runs, width),
            rows,
            COLUMNS,
            lines_stay=True,
        )
    else:
        _show_events(arguments.name, runs, arguments.format, arguments.quiet)
    return 0


COLUMNS = ("id", "folder", "started", "finished", "limit", "inventory", "nodes", *NODE_VERDICTS)


def _row(one: PastRun) -> Row:
    found = dict(zip(NODE_VERDICTS, counts(one), strict=True))
    return {
        **{name: getattr(one, name) for name in COLUMNS[1:5]},
        "id": one.id,
        "folder": str(one.folder),
        "inventory": list(one.inventory),
        "nodes": len(one.hosts),
        **found,
    }


def _listing(runs: Sequence[PastRun], width: int) -> list[str]:
    shown = render_runs(masked_fields(runs), width)
    return shown if runs else [f"no judged run in {visible(str(runs_folder()), 400)}"]


def _show_events(name: str, runs: Sequence[PastRun], form: str, quiet: bool) -> None:
    """Raises UserError for a name that no run has."""
    hosts, rules = names(runs)
    if name in hosts:
        found = events_of_host(runs, name)
        about = f"in {counted(sum(name in one.hosts for one in runs), 'run')}"
    elif name in rules:
        found, about = events_of_rule(runs, name), f"in {counted(len(runs), 'run')}"
    else:
        read = f"; {counted(len(runs), 'run')} were read"
        raise UserError(
            f"no run has a node or a finding {name!r}{nearest(name, [*hosts, *rules]) or read}"
        )
    rows: list[dict[str, Any]] = [asdict(one) for one in found]
    columns = tuple(field.name for field in fields(Event))
    show_rows(
        form,
        quiet,
        lambda width: render_events(name, about, masked_fields(found), len(runs), width),
        rows,
        columns,
    )


def _prune(keep: int | None, older_than: str | None, applies: bool, quiet: bool) -> int:
    if keep is None and older_than is None:
        raise UserError("--prune needs --keep N, --older-than TIME or both")
    now = datetime.datetime.now(datetime.UTC)
    before = (
        moment_of(older_than, now, "--older-than").strftime("%Y-%m-%dT%H:%M:%SZ")
        if older_than
        else None
    )
    found = runs_on_disk(runs_folder())
    going = to_prune(found, keep, before)
    lost = [one for one in going if applies and not _removed(one)]
    if not quiet:
        sys.stdout.write("".join(f"{visible(str(one.folder), 4000)}\n" for one in going))
    sys.stderr.write(f"unhang: {_summary(found, going, applies)}\n")
    return bool(lost)


def _summary(found: list[RunOnDisk], going: list[RunOnDisk], applied: bool) -> str:
    """The runs that were or would be removed, and why others are kept at any age."""
    stays = len(found) - len(going)
    pinned = sorted({one.kept for one in found if one.kept})
    why = f" (of some, because {'; '.join(pinned)})" if pinned else ""
    done = "removed" if applied else "would be removed; --apply removes them"
    return f"{counted(len(going), 'run folder')} {done}; {counted(stays, 'stays', 'stay')}{why}"


def _removed(one: RunOnDisk) -> bool:
    try:
        shutil.rmtree(one.folder)
    except OSError as problem:
        sys.stderr.write(
            f"unhang: {visible(str(one.folder), 4000)} could not be removed: {problem.strerror}\n"
        )
        return False
    return True
