"""`unhang merge RUN...`: makes one run of several, of several controllers, sites or ways, and
judges it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from unhang.audit.commands.arrived_lines import say_arrived
from unhang.audit.commands.audit import judge_new_run
from unhang.audit.commands.audit_ways import write_run
from unhang.audit.commands.judging_options import add_judging_options, check_judging_options
from unhang.audit.ways.documents import Arrival
from unhang.audit.ways.files import arrivals_of, limits
from unhang.core.ansible.playbook_command import as_typed
from unhang.core.commands.common_options import add_examples
from unhang.core.errors import UserError
from unhang.core.run import run_folder
from unhang.core.run.own_runs import is_own, mark_as_own, own_inventories
from unhang.core.run.run_input import read_run_input

EXAMPLES = """\
  unhang merge 20261124T0100Z 20261124T0105Z          two runs of this controller
  unhang merge /srv/site-a/runs/latest /srv/site-b/runs/latest --severity critical   the last runs of two sites"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="run folders or their ids; of a node that several have, the newest document counts",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="parent of the new run folder (default: where the other runs are)",
    )
    add_judging_options(parser, "the runs' own", is_new=True)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """As for an audit: 0 nothing found, 1 findings, 2 the command failed, or a document could not
    be read."""
    check_judging_options(arguments)
    given = {folder.resolve(): folder for folder in map(run_folder.find_run, arguments.runs)}
    if len(given) < 2:
        raise UserError("expected two runs or more to merge, found one")
    runs = [run_folder.Run(folder, read_run_input(folder).document) for folder in given]
    parent = Path(arguments.out) if arguments.out else run_folder.runs_folder()
    folder = parent.absolute() / run_folder.new_run_id()
    arrived = write_run(folder, _arrivals(runs), _head(runs))
    mark_as_own(folder)
    say_arrived(arrived)
    code = judge_new_run(folder, arguments)
    return 2 if arrived.faults else code


def _arrivals(runs: list[run_folder.Run]) -> Iterator[tuple[str, Arrival]]:
    """Their documents; one that was not read is as old as its run."""
    together = limits()
    for one in runs:
        for arrival in arrivals_of(str(one.folder), together):
            yield str(one.document.get("started") or ""), arrival


def _head(runs: list[run_folder.Run]) -> dict[str, object]:
    """What run.json of the new run has of the others."""
    own = [one for one in runs if is_own(one.folder)]
    listed = [name for one in own for name in own_inventories(one.folder)]
    if others := [one for one in runs if one not in own and one.document.get("inventory")]:
        names = ", ".join(as_typed(one.folder) for one in others)
        sys.stderr.write(
            "unhang: not made here with unhang audit, so that the new run has no inventory of it:"
            f" {names}\n"
        )
    sources = {name for one in runs for name in one.document.get("policy_sources") or []}
    started = min(str(one.document.get("started") or "") for one in runs)
    return {
        "started": started,
        "inventory": list(dict.fromkeys(listed)) or None,
        "limit": None,
        "policy_sources": sorted(sources),
    }
