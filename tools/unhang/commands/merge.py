"""`unhang merge RUN...`: makes one run of several, of several controllers, sites or ways, and judges it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from unhang.audit.collect.arrivals import write_arrivals
from unhang.audit.collect.documents import Arrival
from unhang.audit.collect.files import arrivals_of
from unhang.audit.triage.run_judging import check_rules_and_policy
from unhang.base import project
from unhang.base.errors import UserError
from unhang.commands.audit import judge_new_run
from unhang.commands.audit_ways import say_arrived, write_run
from unhang.commands.common_options import add_examples
from unhang.commands.fail_on import add_fail_on
from unhang.commands.filters import add_filters, check_filters
from unhang.commands.hooks import add_hooks, check_hooks
from unhang.commands.run_output import add_format, check_page
from unhang.run import run_folder
from unhang.show.history.location import OFF, SETTING

EXAMPLES = """\
  unhang merge 20261124T0100Z 20261124T0105Z          two runs of this controller
  unhang merge /srv/site-a/runs/latest /srv/site-b/runs/latest -o name --severity critical   the last runs of two sites"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and the options of judging."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders or their ids; of a node that several have, the newest document counts")
    parser.add_argument("--out", metavar="DIR", help="parent of the new run folder (default: where the other runs are)")
    parser.add_argument("--policy", metavar="FILE", help="use this policy instead of the runs' own")
    parser.add_argument("--rules", action="append", metavar="DIR", help="a folder with additional rules")
    parser.add_argument("--db", metavar="FILE", help=f"the history's file; {SETTING}={OFF}: none")
    add_format(parser)
    add_filters(parser)
    add_fail_on(parser)
    add_hooks(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """As for an audit: 0 nothing found, 1 findings, 2 the command failed, or a document could not be read."""
    rules = [Path(one) for one in arguments.rules or []]
    check_rules_and_policy(rules, arguments.policy)
    check_filters(arguments, rules)
    check_page(arguments)
    check_hooks(arguments)
    given = {folder.resolve(): folder for folder in map(run_folder.find_run, arguments.runs)}
    if len(given) < 2:
        raise UserError("expected two runs or more to merge, found one")
    runs = [run_folder.read_run(folder) for folder in given]
    home = project.find_project()
    parent = Path(arguments.out) if arguments.out else run_folder.runs_folder(project.checkout_of(home))
    folder = parent.absolute() / run_folder.new_run_id()
    run_folder.make_folder(folder)
    arrived = write_arrivals(folder, None, _arrivals(runs))
    write_run(folder, arrived, _head(runs))
    say_arrived(arrived)
    code = judge_new_run(folder, arguments)
    return 2 if arrived.faults else code


def _arrivals(runs: list[run_folder.Run]) -> Iterator[tuple[str, Arrival]]:
    """Their documents; one that was not read is as old as its run."""
    for one in runs:
        for arrival in arrivals_of(str(one.folder)):
            yield str(one.document.get("started") or ""), arrival


def _head(runs: list[run_folder.Run]) -> dict[str, object]:
    """What run.json of the new run has of the others."""
    inventories = [one.document.get("inventory") or [] for one in runs]
    listed = [name for names in inventories for name in ([names] if isinstance(names, str) else names)]
    sources = {name for one in runs for name in one.document.get("policy_sources") or []}
    started = min(str(one.document.get("started") or "") for one in runs)
    return {"started": started, "inventory": list(dict.fromkeys(listed)) or None, "limit": None, "policy_sources": sorted(sources)}
