"""`unhang remediate PLAN|RUN --status`: where each node of a rollout stands and what comes next, by the plan and its journal."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from unhang import run_folder
from unhang.commands.showing import deliver
from unhang.errors import UserError
from unhang.plan.plan_document import FILE, Plan, read_plan
from unhang.report.json import render_json
from unhang.report.table import terminal_shape
from unhang.rollout.journal import read_journal
from unhang.rollout.status import exit_code, status_of
from unhang.rollout.status_table import render_status
from unhang.text import ascii_only, visible

FORMATS = ("table", "json")
ONE_BY_ONE = "playbooks/remediate.yml takes nodes one at a time: docs/remediation.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which plan, and how to show it."""
    latest = run_folder.latest_run()
    parser.add_argument("plan", metavar="PLAN|RUN", nargs="?", default=latest, help="plan.json, or the run folder (or id) that holds it (default: %(default)s)")
    parser.add_argument("--status", action="store_true", help="say where each node stands and what comes next; nothing is started")
    parser.add_argument("-o", "--format", choices=FORMATS, default="table")


def run(arguments: argparse.Namespace) -> int:
    """0 every node is proved and given back, 1 not yet, or not all. Raises UserError."""
    if not arguments.status:
        raise UserError(f"expected --status, found nothing to do: a plan is not rolled out in waves yet; {ONE_BY_ONE}")
    folder, plan = find_plan(arguments.plan)
    status = status_of(plan, read_journal(folder))
    text = render_json(status) if arguments.format == "json" else render_status(status, _undo(folder))
    _, _, plain = terminal_shape(sys.stdout, os.environ)
    deliver(ascii_only(text) if plain and arguments.format == "table" else text, "-")
    return exit_code(status)


def find_plan(named: str) -> tuple[Path, Plan]:
    """(run folder, plan) of a plan.json, a run folder or a run's id. Raises UserError."""
    path = Path(named)
    if path.is_file() and path.name != FILE:
        raise UserError(f"expected {FILE} of a run folder, found {visible(named, 200)}: the journal lies beside the plan under its own name")
    folder = path.parent if path.is_file() else run_folder.find_run(named)
    return folder.resolve(), read_plan(folder)


def _undo(folder: Path) -> str:
    inventories = [str(one) for one in run_folder.read_run(folder).document.get("inventory") or ()]
    words = [word for inventory in inventories for word in ("-i", inventory)]
    return shlex.join(["ansible-playbook", "playbooks/rollback.yml", *words, "--limit", "HOST"]) + " -e unhang_apply=true -e unhang_state=STATE"
