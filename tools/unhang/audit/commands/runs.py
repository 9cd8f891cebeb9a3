"""`unhang runs`: lists the runs of the history, adds a run that is missing there, and removes old
run folders."""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
from dataclasses import asdict, fields
from pathlib import Path

from unhang.audit.commands.history_options import add_history_options, history_file
from unhang.audit.history.database import reading
from unhang.audit.history.pruning import RunOnDisk, runs_on_disk, to_prune
from unhang.audit.history.recording import record
from unhang.audit.history.rendering import render_runs
from unhang.audit.history.run_rows import RunRow, moment_of, run_rows, with_paths
from unhang.core import project
from unhang.core.commands.common_options import add_flag, add_repeatable, number_of
from unhang.core.commands.row_output import show_rows
from unhang.core.errors import UserError
from unhang.core.run import run_folder
from unhang.core.secrets_in_text import masked_fields
from unhang.core.text import counted, visible

SHOWN = 20
EXAMPLES = """\
  unhang runs                                     the last 20 runs
  unhang runs -n 0 -o csv                         all of them, for a spreadsheet
  unhang runs --add runs/20261120T043323Z-…       takes a run in that ended early, or that is older than the history
  unhang runs --prune --keep 60 --older-than 90d  which run folders would go; --apply removes them"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--newest",
        type=number_of("runs"),
        default=SHOWN,
        metavar="N",
        help="number of newest runs to list, 0 for all (default: %(default)s)",
    )
    add_repeatable(
        parser,
        "--add",
        "RUN",
        "store this run folder in the history; runs are ordered by storage time",
    )
    add_flag(
        parser,
        "--prune",
        "list run folders that are old enough to remove; their findings stay in the history",
    )
    parser.add_argument(
        "--keep", type=number_of("run folders"), metavar="N", help="with --prune: keep the newest N"
    )
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        help="with --prune: keep runs younger than this: 12h, 90d, 8w, or since a day: 2026-11-20",
    )
    parser.add_argument("--apply", action="store_true", help="with --prune: remove them")
    add_history_options(parser, "ids of runs", EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0; 2 when a run folder could not be removed. Raises UserError."""
    if arguments.prune:
        return _prune(arguments)
    if given := [
        name
        for name, value in (
            ("--keep", arguments.keep),
            ("--older-than", arguments.older_than),
            ("--apply", arguments.apply),
        )
        if value
    ]:
        raise UserError(
            f"expected --prune beside {given[0]}, found it alone; see unhang runs --help"
        )
    file = history_file(arguments)
    for named in arguments.add:
        folder = run_folder.find_run(named)
        outcome = "stored" if record(folder, file) else "the history has it already"
        sys.stderr.write(f"unhang: {visible(folder.name, 128)}: {outcome}\n")
    with reading(file) as connection:
        rows = run_rows(connection, arguments.newest or None)
    columns = tuple(field.name for field in fields(RunRow))
    show_rows(
        arguments,
        lambda width: render_runs(
            masked_fields(with_paths(rows, run_folder.runs_folder())), str(file), width
        ),
        [asdict(row) for row in rows],
        columns,
        "id",
        lines_stay=True,
    )
    return 0


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.keep is None and arguments.older_than is None:
        raise UserError("--prune: expected --keep N, --older-than TIME or both, found neither")
    now = datetime.datetime.now(datetime.UTC)
    before = (
        moment_of(arguments.older_than, now, "--older-than").strftime("%Y-%m-%dT%H:%M:%SZ")
        if arguments.older_than
        else None
    )
    found = runs_on_disk(run_folder.runs_folder(project.checkout_of(project.find_project())))
    going = to_prune(found, arguments.keep, before)
    lost = [one for one in going if arguments.apply and not _removed(one.folder)]
    if not arguments.quiet:
        sys.stdout.write("".join(f"{visible(str(one.folder), 4000)}\n" for one in going))
    sys.stderr.write(f"unhang: {_summary(found, going, arguments.apply)}\n")
    return 2 if lost else 0


def _summary(found: list[RunOnDisk], going: list[RunOnDisk], applied: bool) -> str:
    """The runs that were or would be removed, and why others are kept at any age."""
    stays = len(found) - len(going)
    pinned = sorted({one.kept for one in found if one.kept})
    why = f" (of some, because {'; '.join(pinned)})" if pinned else ""
    done = "removed" if applied else "would be removed; --apply removes them"
    return f"{counted(len(going), 'run folder')} {done}; {counted(stays, 'stays', 'stay')}{why}"


def _removed(folder: Path) -> bool:
    try:
        shutil.rmtree(folder)
    except OSError as problem:
        sys.stderr.write(
            f"unhang: {visible(str(folder), 4000)} could not be removed: {problem.strerror}\n"
        )
        return False
    return True
